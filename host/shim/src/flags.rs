//! What containerd says on the command line.

use crate::{Id, error::Error};
use std::{ffi::OsString, path::PathBuf};

/// The longest argument, and the most of them; more than any containerd has ever passed.
const MAX_ARGUMENT_BYTES: usize = 4096;
const MAX_ARGUMENTS: usize = 64;

/// What the program is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `-info`: say what this runtime is (containerd 2.0 and newer).
    Info,
    /// `-v`: print the version.
    Version,
    /// `start`: find or make the server for a task, and print its address.
    Start(Task),
    /// `delete`: say how a task ended whose server is gone.
    Delete(Task),
}

/// Which task of which containerd a command is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// containerd's namespace.
    pub namespace: Id,
    /// The task's id: a container's, or a pod's.
    pub id: Id,
    /// The socket of containerd's gRPC API.
    pub address: String,
    /// The bundle; the working directory if absent.
    pub bundle: Option<PathBuf>,
}

impl Command {
    /// Reads the arguments after the program's name, as Go's `flag` package does: `-name value`, `--name value`,
    /// `-name=value`, the action last.
    ///
    /// # Errors
    /// An argument that no containerd passes, or one that is missing.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Error> {
        let mut arguments = arguments.into_iter().enumerate().map(|(number, argument)| {
            let text = argument.into_string().map_err(|_| Error::invalid("an argument is not UTF-8"))?;
            if number >= MAX_ARGUMENTS || text.len() > MAX_ARGUMENT_BYTES {
                return Err(Error::invalid(format_args!(
                    "more than {MAX_ARGUMENTS} arguments, or one of more than {MAX_ARGUMENT_BYTES} bytes"
                )));
            }
            Ok(text)
        });
        let (mut namespace, mut id, mut address, mut bundle) = (None, None, None, None);
        let mut action = None;
        while let Some(argument) = arguments.next() {
            let argument = argument?;
            let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))
            else {
                action = Some(argument);
                break;
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            match name {
                "info" => return Ok(Self::Info),
                "v" => return Ok(Self::Version),
                "debug" => continue,
                _ => {}
            }
            let value = match value {
                Some(value) => value,
                None => arguments
                    .next()
                    .unwrap_or_else(|| Err(Error::invalid(format_args!("-{name} has no value"))))?,
            };
            match name {
                "namespace" => namespace = Some(value.parse()?),
                "id" => id = Some(value.parse()?),
                "address" => address = Some(value),
                "bundle" => bundle = Some(PathBuf::from(value)),
                // The binary that publishes events; they go over containerd's socket instead.
                "publish-binary" => {}
                // Where a server of ours listens is not containerd's to say.
                "socket" => {}
                _ => return Err(Error::invalid(format_args!("-{name} is not known"))),
            }
        }
        if let Some(extra) = arguments.next() {
            return Err(Error::invalid(format_args!("{:?} is one argument too many", extra?)));
        }
        let action = action.ok_or_else(|| {
            Error::invalid(
                "start or delete is missing: containerd executes this program, nobody else",
            )
        })?;
        let missing = |name: &str| Error::invalid(format_args!("-{name} is missing"));
        let task = Task {
            namespace: namespace.ok_or_else(|| missing("namespace"))?,
            id: id.ok_or_else(|| missing("id"))?,
            address: address.ok_or_else(|| missing("address"))?,
            bundle,
        };
        match action.as_str() {
            "start" => Ok(Self::Start(task)),
            "delete" => Ok(Self::Delete(task)),
            other => Err(Error::invalid(format_args!("{other:?} is neither start nor delete"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, Error> {
        Command::parse(line.split_whitespace().map(OsString::from))
    }

    /// As `ctr run` of containerd 1.6.20 passed them.
    const RECORDED: &str = "-namespace default -address /run/containerd/containerd.sock -publish-binary /usr/bin/containerd -id one start";

    #[test]
    fn what_containerd_passes_is_understood() {
        let task = Task {
            namespace: "default".parse().unwrap(),
            id: "one".parse().unwrap(),
            address: "/run/containerd/containerd.sock".to_owned(),
            bundle: None,
        };
        assert_eq!(parse(RECORDED), Ok(Command::Start(task.clone())));
        let debug = RECORDED.replace(" start", " -debug start");
        assert_eq!(parse(&debug), Ok(Command::Start(task.clone())));
        let equals = "--namespace=default --id=one -address=/run/containerd/containerd.sock -bundle /run/b delete";
        assert_eq!(
            parse(equals),
            Ok(Command::Delete(Task { bundle: Some("/run/b".into()), ..task }))
        );
        assert_eq!(parse("-info"), Ok(Command::Info));
        assert_eq!(parse("-v"), Ok(Command::Version));
    }

    #[test]
    fn anything_else_is_refused_with_a_sentence() {
        let long = format!("-namespace {} start", "x".repeat(5000));
        let many = "-debug ".repeat(100);
        for (line, says) in [
            ("", "nobody else"),
            ("-namespace default -address /a start", "-id is missing"),
            ("-namespace ../.. -id a -address /a start", "is no identifier"),
            ("-namespace", "-namespace has no value"),
            ("-root /x start", "-root is not known"),
            ("-namespace n -id a -address /a stop", "neither start nor delete"),
            ("-namespace n -id a -address /a start start", "too many"),
            (&long, "4096 bytes"),
            (&many, "64 arguments"),
        ] {
            let error = parse(line).expect_err(line).to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
