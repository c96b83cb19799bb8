//! What can go wrong, and what to do about it.

use std::io;

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why nothing came of it; one line for people.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process is not there, or no longer.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// Nobody may be asked: there is no squeezer in the process.
    #[error("no squeezer in process {pid}: {tried}; start it with one, see squeezers/README.md")]
    NoSqueezer {
        /// The process.
        pid: u32,
        /// Where one was looked for, and what was there instead.
        tried: String,
    },
    /// The socket is not one, or nobody is there.
    #[error("{path}: {reason}")]
    Socket {
        /// Its path, as the process sees it.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The squeezer does not keep to the protocol.
    #[error("the squeezer does not speak protocol version 1: {0}")]
    Protocol(String),
    /// The squeezer has answered, with this error.
    #[error("the squeezer says: {0}")]
    Squeezer(String),
    /// It took too long.
    #[error(
        "{0} took longer than the deadline: the process may be stopped, frozen or busy; \
         resume it or give it longer"
    )]
    Deadline(&'static str),
    /// Another process's pages may not be evicted.
    #[error("evicting libraries needs root, or CAP_SYS_NICE and the right to trace the process")]
    NotPermitted,
    /// The system did not do what it was asked for.
    #[error("{what}: {error}{}", hint(.error))]
    System {
        /// What failed.
        what: String,
        /// Why.
        error: io::Error,
    },
}

impl Error {
    /// The system failed to do `what`.
    pub(crate) fn system(what: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), error: error.into() }
    }
}

/// The way out, where there is one.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; be root, or the user of the process",
        _ => "",
    }
}

/// `text` of another process as one line for a terminal: bounded, and without control characters.
pub(crate) fn printable(text: &str) -> String {
    const MOST_CHARACTERS: usize = 300;
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = text.chars().take(MOST_CHARACTERS).map(clean).collect();
    if text.chars().nth(MOST_CHARACTERS).is_some() {
        line.push_str("...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_one_bounded_line() {
        assert_eq!(printable("a\nb\x1b[2Jc"), "a b [2Jc");
        assert_eq!(printable(&"é".repeat(300)), "é".repeat(300));
        assert_eq!(printable(&"é".repeat(301)), "é".repeat(300) + "...");
    }

    #[test]
    fn a_refusal_of_the_system_says_what_would_help() {
        let denied = Error::system("/proc/1/environ", io::Error::from_raw_os_error(13));
        assert!(denied.to_string().ends_with("; be root, or the user of the process"), "{denied}");
    }
}
