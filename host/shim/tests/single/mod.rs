//! A program that is a test by itself, which is asked as a test's program is, by cargo and by people.

use std::{env, process::ExitCode};

/// Runs the test, if the arguments do not ask for something else than `name`.
pub fn run(name: &str, test: impl FnOnce() -> ExitCode) -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        println!("{name}: test");
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
        return ExitCode::SUCCESS;
    }
    test()
}
