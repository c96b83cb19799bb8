//! `squeezy init`: a configuration to begin with.

use crate::{output::print, serve::CONFIG_HELP};
use clap::Args as ClapArgs;
use rustix::process::geteuid;
use squeezy_vmm::machine_bytes;
use std::{
    fs::File,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

const GIB: u64 = 1 << 30;

/// Writes a configuration for `squeezy serve`, with a comment for each key.
///
/// The memory budget is half of this machine's. Keys that are commented out have the default that they
/// show. An existing file is never overwritten.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// The file; `-` prints it instead.
    #[arg(default_value = "squeezy.toml", value_name = "FILE")]
    file: PathBuf,
}

/// Writes it.
pub fn main(args: &Args) -> Result<ExitCode, String> {
    let text = configuration(machine_bytes().ok(), geteuid().is_root());
    let path = &args.file;
    if path == Path::new("-") {
        print(text.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    write(path, &text)?;
    let path = path.display();
    print(format_args!(
        "{path} is written. What works on this machine: squeezy doctor --config {path}"
    ));
    print(format_args!("To serve functions: squeezy serve --config {path}"));
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => {
            format!(
                "{} exists, and is left as it is: move it away, or name another file",
                path.display()
            )
        }
        _ => format!("{}: {error}", path.display()),
    };
    let mut file = File::create_new(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(|error| {
        // Half a configuration is worse than none.
        let _ = std::fs::remove_file(path);
        failed(error)
    })
}

/// The text for a machine with this much memory, and for a daemon that root or somebody else runs.
fn configuration(machine_bytes: Option<u64>, is_root: bool) -> String {
    let half_gib = machine_bytes.map(|bytes| (bytes / 2 / GIB).max(1));
    let mut text =
        "# Configuration of `squeezy serve`. Paths are relative to this file's directory.\n"
            .to_owned();
    for line in CONFIG_HELP.lines().filter(|line| !line.starts_with('#')) {
        let (assignment, comment) = line.split_once('#').unwrap_or((line, ""));
        let (assignment, comment) = (assignment.trim_end(), comment.trim());
        let chosen = match assignment.split(' ').next() {
            Some("memory") => half_gib.map(|gib| format!("memory = \"{gib}G\"")),
            Some("state_directory") if !is_root => Some("state_directory = \"state\"".to_owned()),
            _ => None,
        };
        let assignment = chosen.unwrap_or_else(|| format!("# {assignment}"));
        text += &format!("\n# {}.\n{assignment}\n", capitalized(comment));
    }
    text
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::Config;

    #[test]
    fn what_is_written_is_a_configuration_with_every_key() {
        let directory = Path::new("/etc/squeezy");
        let default = Config::parse("", directory).unwrap();
        let text = configuration(Some(24 * GIB + 1), true);
        let config = Config::parse(&text, directory).unwrap();
        assert_eq!(config, Config { memory_bytes: 12 * GIB, ..default.clone() });
        let config = Config::parse(&configuration(None, false), directory).unwrap();
        let state_directory = directory.join("state");
        assert_eq!(config, Config { state_directory, ..default.clone() });
        // Each can be turned on as it stands there.
        let all: String = text
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(rest) if rest.contains(" = ") => format!("{rest}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let config = Config::parse(&all, directory).unwrap();
        assert_eq!(config, Config { memory_bytes: 12 * GIB, ..default });
        assert_eq!(configuration(Some(GIB), true).matches("memory = \"1G\"").count(), 1);
    }

    #[test]
    fn a_file_that_exists_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("squeezy.toml");
        write(&path, "a").unwrap();
        let error = write(&path, "b").unwrap_err();
        assert!(error.contains("left as it is"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a");
        let error = write(&directory.path().join("none/squeezy.toml"), "a").unwrap_err();
        assert!(error.contains("none/squeezy.toml"), "{error}");
    }
}
