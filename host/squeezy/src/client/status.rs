//! `squeezy status`.

use super::{
    ClientError, Connection,
    state::{COLUMNS, State},
    table::lines,
};
use crate::output::print;
use clap::Args;
use std::process::ExitCode;

/// Shows how a running daemon stands.
///
/// That is its memory, and for each function its instances, its VM's memory and its latency.
///
/// BUSY, IDLE, FROZEN (idle, and kept from running), STARTING and ENDING count instances, WAITING
/// the calls that wait for one. INSTANCE is the memory that one instance is promised, PROMISED what all
/// of the function are promised together: less than so many times as much while frozen ones count as
/// what they hold, nothing where the VM has it from its boot on. PLUGGED is what the VM has, RESIDENT what the host really spends on it, BACK what instances have given back so far,
/// COLD the calls that waited for an instance to start, FAILED those that no instance answered: it
/// ended under them or could not be started, or its VM. P50 and P99 are the latency of calls in the last
/// minutes. Below the table stands whose ended instances' memory is not back, and which functions' calls
/// are turned away, and why, if the key can be read; nothing else takes it.
#[derive(Clone, Debug, Args)]
pub struct Status {
    #[command(flatten)]
    connection: Connection,
    /// Prints JSON, with all that the daemon says.
    #[arg(long)]
    json: bool,
}

impl Status {
    /// Shows it.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        // Samples of the time before are not wanted.
        if self.json {
            print(State::text(&self.connection, u64::MAX)?);
            return Ok(ExitCode::SUCCESS);
        }
        let state = State::ask(&self.connection, u64::MAX)?;
        print(heading(&self.connection, &state));
        if !state.functions.is_empty() {
            print("");
            lines(&state.functions, &COLUMNS).iter().for_each(print);
        }
        if state.held().chain(state.problems()).next().is_some() {
            print("");
            state.held().chain(state.problems()).for_each(print);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The daemon on one line.
pub fn heading(connection: &Connection, state: &State) -> String {
    format!(
        "squeezy {} at {}: memory promised {} of {} MiB, resident {} MiB, by method {}",
        state.version,
        connection.url(),
        state.memory_committed_bytes >> 20,
        state.memory_limit_bytes >> 20,
        state.resident_bytes() >> 20,
        state.method,
    )
}
