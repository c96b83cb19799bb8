//! `squeezy reload`.

use super::{ClientError, Connection, show};
use crate::{output::print, serve::Reloaded};
use clap::Args;
use serde::Deserialize;
use std::process::ExitCode;

/// Makes a running daemon read its configuration again.
///
/// Shows what has changed and what will change only when the daemon is started again. Calls in progress and
/// instances are not affected. If anything in the configuration is wrong, nothing of it changes. SIGHUP does the
/// same, and says it in the daemon's log.
#[derive(Clone, Debug, Args)]
pub struct Reload {
    #[command(flatten)]
    connection: Connection,
    /// Prints JSON: `applied` and `needs_restart`, lists of `key`, `from` and `to`.
    #[arg(long)]
    json: bool,
}

impl Reload {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        let reloaded = self.connection.ask_daemon("POST", "/reload", None)?;
        if self.json {
            show(&reloaded);
            return Ok(ExitCode::SUCCESS);
        }
        let reloaded = Reloaded::deserialize(&reloaded);
        print(reloaded.map_err(|error| self.connection.unreachable(&error))?);
        Ok(ExitCode::SUCCESS)
    }
}
