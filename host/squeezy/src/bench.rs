//! `squeezy bench`: runs the experiments, which are a separate program, `squeezy-bench`.

use std::{
    ffi::OsString,
    io::{Error, ErrorKind},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

/// The program's name, both next to this program and in $PATH.
const PROGRAM: &str = "squeezy-bench";

/// Runs an experiment that compares methods to resize a VM's memory.
#[derive(clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct Bench {
    /// Arguments of squeezy-bench: an experiment and its options, or --help.
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Bench {
    /// Replaces this process with `squeezy-bench`, with this log level. Returns only if that fails,
    /// with the reason.
    pub fn execute(self, log: &str) -> String {
        let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
        let beside = beside.filter(|path| path.exists());
        let program = beside.clone().unwrap_or_else(|| PathBuf::from(PROGRAM));
        let error = Command::new(&program).args(self.arguments).env("SQUEEZY_LOG", log).exec();
        refusal(&program, &error)
    }
}

fn refusal(program: &Path, error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => format!(
            "{PROGRAM} is neither next to this program nor in $PATH: `make programs` in a checkout builds it"
        ),
        _ => format!("{}: {error}", program.display()),
    }
}
