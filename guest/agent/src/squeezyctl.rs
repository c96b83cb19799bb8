//! `squeezyctl`: uses partitions by hand, from inside the guest.

use clap::{Parser, Subcommand};
use squeezy_agent::{
    abi::{self, Wait},
    sysfs,
};
use squeezy_protocol::{Partition, PartitionNumber, Squeezy};
use std::{
    ffi::OsString,
    fmt::Write as _,
    io::{self, Write as _},
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

/// squeezyctl itself failed. The same status as in env(1) and timeout(1).
const FAILED: u8 = 125;
/// The command was found but cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
const NOT_FOUND: u8 = 127;

/// Runs commands in partitions of this guest's memory, and shows the partitions.
///
/// The exit status of exec is that of COMMAND; 125 if squeezyctl itself fails, 126 if COMMAND is found
/// but cannot be executed, 127 if COMMAND is not found. The other commands return 0, or 125 on failure.
#[derive(Parser)]
#[command(name = "squeezyctl", version)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Run a command, and all its descendants, with their memory in a partition.
    Exec {
        /// How long to wait for the partition: milliseconds, or 'forever'.
        #[arg(long, value_name = "MS", default_value = "0", value_parser = parse_wait)]
        wait: Wait,
        /// The number of the partition; the default is any free one.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..255))]
        partition: Option<u16>,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Give the free memory of a partition in use back to the host, and print the number of bytes.
    Report {
        /// The smallest blocks to give back: 0 is a page, 9 a huge page of 2 MiB.
        #[arg(long, value_name = "ORDER", default_value = "9", value_parser = clap::value_parser!(u8).range(0..=10))]
        order: u8,
        /// The number of the partition.
        #[arg(value_name = "N", value_parser = clap::value_parser!(u16).range(0..255))]
        partition: u16,
    },
    /// Show every partition: its state, users, size and free memory.
    Status {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the kernel's counters.
    Stat {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

fn parse_wait(text: &str) -> Result<Wait, String> {
    if text == "forever" {
        return Ok(Wait::Forever);
    }
    let millis = text.parse().map_err(|_| "give milliseconds, or 'forever'".to_owned())?;
    Ok(Wait::Millis(millis))
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = if error.use_stderr() { FAILED } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let result = match arguments.action {
        Action::Exec { wait, partition, command } => Err(exec(wait, partition, &command)),
        Action::Report { partition, order } => sysfs::report(PartitionNumber(partition), order)
            .map(|bytes| println!("{bytes}"))
            .map_err(|error| (FAILED, error.to_string())),
        Action::Status { json } => show(json, table, serde_json::to_string_pretty),
        Action::Stat { json } => {
            show(json, counters, |squeezy| serde_json::to_string_pretty(&squeezy.counters))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, message)) => {
            eprintln!("squeezyctl: {message}");
            ExitCode::from(code)
        }
    }
}

/// Executes the command; returns only on failure, with status and message.
fn exec(wait: Wait, partition: Option<u16>, command: &[OsString]) -> (u8, String) {
    if let Err(error) = abi::assign(partition.map(PartitionNumber), wait) {
        return (FAILED, error.to_string());
    }
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    (code, format!("{}: {error}", command[0].display()))
}

fn show(
    json: bool,
    text: impl Fn(&Squeezy) -> String,
    to_json: impl Fn(&Squeezy) -> serde_json::Result<String>,
) -> Result<(), (u8, String)> {
    let failed = |error: &dyn std::fmt::Display| (FAILED, error.to_string());
    let squeezy = sysfs::read()
        .map_err(|e| failed(&e))?
        .ok_or_else(|| failed(&abi::AssignError::NoPartitions))?;
    let output =
        if json { to_json(&squeezy).map_err(|e| failed(&e))? + "\n" } else { text(&squeezy) };
    match io::stdout().write_all(output.as_bytes()) {
        // `squeezyctl status | head` is not a failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(&error)),
        _ => Ok(()),
    }
}

fn table(squeezy: &Squeezy) -> String {
    let mut text = format!(
        "{} partitions of {} MiB, shared partition {} MiB\n",
        squeezy.partitions.len(),
        mebibytes(squeezy.partition_size_bytes),
        mebibytes(squeezy.shared_size_bytes),
    );
    if !squeezy.shrink_blocked.is_empty() {
        let _ = writeln!(text, "owed to the host, but: {}", squeezy.shrink_blocked);
    }
    text.push_str("PARTITION  STATE        USERS  SIZE MiB  FREE MiB  OOM KILLS\n");
    for partition in &squeezy.partitions {
        row(&mut text, partition);
    }
    text
}

fn row(text: &mut String, partition: &Partition) {
    let _ = writeln!(
        text,
        "{:>9}  {:<11}  {:>5}  {:>8}  {:>8}  {:>9}",
        partition.number.to_string(),
        state_name(partition),
        partition.users,
        mebibytes(partition.managed_bytes),
        mebibytes(partition.free_bytes),
        partition.oom_kills,
    );
}

fn state_name(partition: &Partition) -> String {
    // The kernel's own name, from the protocol's list of them.
    serde_json::to_value(partition.state)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

fn counters(squeezy: &Squeezy) -> String {
    let width = squeezy.counters.keys().map(String::len).max().unwrap_or(0);
    squeezy.counters.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name:<width$}  {value}");
        text
    })
}

fn mebibytes(bytes: u64) -> u64 {
    bytes >> 20
}

#[cfg(test)]
mod tests {
    use super::*;
    use squeezy_protocol::PartitionState;

    fn parse(line: &str) -> Result<Action, clap::Error> {
        Arguments::try_parse_from(line.split(' ')).map(|arguments| arguments.action)
    }

    #[test]
    fn the_command_line_is_that_of_numactl() {
        let Ok(Action::Exec { wait, partition, command }) =
            parse("squeezyctl exec --wait forever --partition 3 -- ls -l --json")
        else {
            panic!("not understood")
        };
        assert_eq!((wait, partition), (Wait::Forever, Some(3)));
        assert_eq!(command, ["ls", "-l", "--json"]);
        let Ok(Action::Exec { wait, command, .. }) = parse("squeezyctl exec ls -l") else {
            panic!("not understood")
        };
        assert_eq!(wait, Wait::Millis(0));
        assert_eq!(command, ["ls", "-l"]);
        for bad in [
            "squeezyctl",
            "squeezyctl exec",
            "squeezyctl exec --wait -1 ls",
            "squeezyctl exec --wait soon ls",
            "squeezyctl exec --partition 255 ls",
            "squeezyctl exec --partition -1 ls",
            "squeezyctl status extra",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_table_lines_up() {
        let partition = |number, state, users| Partition {
            number: PartitionNumber(number),
            state,
            users,
            managed_bytes: 768 << 20,
            free_bytes: 100 << 20,
            oom_kills: 0,
        };
        let text = table(&Squeezy {
            partition_size_bytes: 768 << 20,
            shared_size_bytes: 256 << 20,
            shrink_blocked: "assigned 1".to_owned(),
            counters: Default::default(),
            partitions: vec![
                partition(0, PartitionState::Assigned, 2),
                partition(100, PartitionState::Quarantined, 0),
            ],
        });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "2 partitions of 768 MiB, shared partition 256 MiB");
        assert_eq!(lines[1], "owed to the host, but: assigned 1");
        assert_eq!(lines[2].len(), lines[3].len());
        assert_eq!(lines[3].len(), lines[4].len());
        assert!(lines[4].contains("100  quarantined"), "{text}");
    }
}
