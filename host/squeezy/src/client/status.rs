//! `squeezy status`.

use super::{
    ClientError, Connection,
    state::{COLUMNS, State},
    table::lines,
};
use crate::output::print;
use clap::Args;
use std::process::ExitCode;

/// Shows the state of a running daemon.
///
/// Shows the daemon's memory, and for each function its instances, its VM's memory and its latency.
///
/// BUSY, IDLE, FROZEN (idle, and kept from running), STARTING and ENDING count instances, WAITING
/// the calls that wait for one. INSTANCE is the memory limit of one instance, PROMISED the memory
/// committed to all instances of the function: less than the sum while frozen ones are charged only
/// for what they occupy, zero if the VM has all its memory from boot. PLUGGED is the memory of the
/// VM, RESIDENT the host memory behind it, BACK the memory that instances have given back so far,
/// TAKEN the free memory that the host has taken by itself, CONDEMNED the memory of instances that it
/// has taken with them while their VM was paused, TAKING how long it took the host to take both, COLD
/// the number of calls that waited for an instance to start, FAILED those that no instance answered
/// because it or its VM ended or could not be started. From BACK to FAILED, all count since the
/// function was made, over restarts of the daemon. P50 and P99 are latencies of calls in the last minutes. Lines below the table list
/// whether activations cannot be written, functions with memory held back by ended instances, and
/// functions whose calls are refused, with the reason; only the reasons need the key.
#[derive(Clone, Debug, Args)]
pub struct Status {
    #[command(flatten)]
    connection: Connection,
    /// Prints everything that the daemon reports, as JSON.
    #[arg(long)]
    json: bool,
}

impl Status {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        // Earlier samples are not needed.
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
        let lines = || state.store().into_iter().chain(state.held()).chain(state.problems());
        if lines().next().is_some() {
            print("");
            lines().for_each(print);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The heading line.
pub fn heading(connection: &Connection, state: &State) -> String {
    format!(
        "squeezy {} at {}: memory promised {} of {} MiB, resident {} MiB, by policy {}",
        state.version,
        connection.url(),
        state.memory_committed_bytes >> 20,
        state.memory_limit_bytes >> 20,
        state.resident_bytes() >> 20,
        state.policy,
    )
}
