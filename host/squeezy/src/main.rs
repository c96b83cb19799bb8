//! `squeezy`: runs functions in VMs whose memory grows and shrinks with their instances.

mod bench;
mod client;
mod diagnostics;
mod doctor;
mod init;
mod interrupt;
mod mutex;
mod output;
mod put_code;
mod run;
mod serve;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use diagnostics::Diagnostics;
use std::process::ExitCode;

/// Exit status after Ctrl-C, by the convention of shells.
const INTERRUPTED: u8 = 130;

/// First steps after installation.
const EXAMPLES: &str = "\
To see it at work, with a function of the checkout:
  squeezy run functions/html

What will work on this machine, and what will be slow:
  squeezy doctor

To serve that function and call it:
  squeezy serve functions/html
  squeezy invoke html --param username you
  squeezy status

Clients find the daemon at --url or $SQUEEZY_URL, and its key in --key-file or $SQUEEZY_KEY_FILE.
The exit status is 0 on success, 1 on failure, 2 for a wrong command line.
`squeezy COMMAND --help` is the manual of a command; docs/operations.md is the whole manual.";

/// Runs functions in VMs whose memory grows and shrinks with their instances.
///
/// Many instances of a function share a VM; when one ends, its memory goes back to the host at once.
#[derive(Parser)]
#[command(version, propagate_version = true, after_long_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    diagnostics: Diagnostics,
}

// The help of a command is the doc comment of its arguments; one here would take precedence.
#[derive(Subcommand)]
enum Command {
    Run(Box<run::Args>),
    Serve(Box<serve::Args>),
    Init(init::Args),
    Doctor(doctor::Args),
    Invoke(client::Invoke),
    Function(client::Functions),
    Image(client::Images),
    Activations(client::Activations),
    Logs(client::Logs),
    Status(client::Status),
    Top(client::Top),
    Reload(client::Reload),
    Namespace(client::Namespaces),
    Key(client::Keys),
    Bench(bench::Bench),
    #[command(hide = true)]
    PutCode(put_code::Args),
    /// Prints a script that makes a shell complete this program's commands and options.
    ///
    /// To install it for bash: squeezy completion bash > /etc/bash_completion.d/squeezy
    Completion {
        /// The shell.
        shell: Shell,
    },
}

fn main() -> ExitCode {
    let Cli { command, diagnostics } = Cli::parse();
    let log = diagnostics.start();
    if let Command::Serve(_) = command {
        squeezy_vmm::heap::prepare();
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(format_args!("cannot start: {error}")),
    };
    match command {
        Command::Run(args) => runtime.block_on(run::main(*args)).unwrap_or_else(fail),
        Command::Serve(args) => runtime.block_on(serve::main(*args)).unwrap_or_else(fail),
        Command::Init(args) => init::main(&args).unwrap_or_else(fail),
        Command::Doctor(args) => runtime.block_on(doctor::main(args)).unwrap_or_else(fail),
        Command::Invoke(invoke) => invoke.run().unwrap_or_else(fail),
        Command::Function(functions) => functions.run().unwrap_or_else(fail),
        Command::Image(images) => images.run().unwrap_or_else(fail),
        Command::Activations(activations) => activations.run().unwrap_or_else(fail),
        Command::Logs(logs) => logs.run().unwrap_or_else(fail),
        Command::Status(status) => status.run().unwrap_or_else(fail),
        Command::Top(top) => top.run().unwrap_or_else(fail),
        Command::Reload(reload) => reload.run().unwrap_or_else(fail),
        Command::Namespace(namespaces) => namespaces.run().unwrap_or_else(fail),
        Command::Key(keys) => keys.run().unwrap_or_else(fail),
        Command::Bench(bench) => fail(bench.execute(&log)),
        Command::PutCode(args) => put_code::main(&args),
        Command::Completion { shell } => {
            // Generated in full before it is written, so that a closed pipe does not cause a panic.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "squeezy", &mut script);
            output::print(String::from_utf8_lossy(&script).trim_end());
            ExitCode::SUCCESS
        }
    }
}

/// Prints an error on one line.
fn fail(error: impl std::fmt::Display) -> ExitCode {
    output::complain(format_args!("squeezy: {error}"));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands of this program in the code blocks of a document, each as its words.
    fn commands(text: &str) -> Vec<Vec<&str>> {
        let mut in_shell = false;
        let mut found = Vec::new();
        for line in text.lines() {
            if line.starts_with("```") {
                in_shell = line == "```sh";
            }
            let words: Vec<_> = line.split_whitespace().collect();
            let program = |word: &&str| *word == "squeezy" || word.ends_with("/squeezy");
            let Some(start) = words.iter().position(program) else { continue };
            // Elsewhere it is an argument, or part of a path.
            let command = start == 0 || words[start - 1].starts_with("-I") || words[0] == "time";
            if command && (in_shell || line.starts_with("    ")) {
                let ends = |word: &&&str| [">", "|", "&", "#", "2>&1"].contains(*word);
                found.push(words[start..].iter().take_while(|word| !ends(word)).copied().collect());
            }
        }
        found
    }

    #[test]
    fn every_command_in_the_documents_is_one_of_this_program() {
        let documents = [
            ("README.md", include_str!("../../../README.md")),
            ("docs/functions.md", include_str!("../../../docs/functions.md")),
            ("docs/operations.md", include_str!("../../../docs/operations.md")),
            ("docs/tutorial.md", include_str!("../../../docs/tutorial.md")),
            ("packaging/README.md", include_str!("../../../packaging/README.md")),
        ];
        for (name, text) in documents {
            let commands = commands(text);
            assert!(!commands.is_empty(), "{name}");
            for words in commands {
                if let Err(error) = Cli::try_parse_from(&words) {
                    panic!("{name}: {}: {error}", words.join(" "));
                }
            }
        }
    }
}
