//! The command line, and its manual.

use clap::{Parser, ValueEnum};
use squeezer::{Level, Request};
use std::{path::PathBuf, str::FromStr, time::Duration};

/// Makes a process give its free memory back at once, and shows the result.
///
/// The process must contain a squeezer (for Java, Node or Python: see squeezers/README.md), which listens on
/// a unix socket. It is asked to collect garbage and to give every free page back to the system. Prints
/// the memory of the process before and after: USS (pages that no other process maps), RSS (all that it
/// maps), PSS (all, each divided by the number of processes that map it), and the resident part of the
/// runtime's heap; then the live part of it, the memory given back, how long the program was paused,
/// and the CPU time.
#[derive(Parser)]
#[command(name = "squeezer", version, after_long_help = MANUAL)]
pub struct Arguments {
    /// The PID of a process, or the path of a squeezer's socket (containing a '/').
    #[arg(value_name = "PID|SOCKET")]
    pub target: Target,
    /// Do not collect garbage, and leave the heap as it is.
    #[arg(long)]
    no_heap: bool,
    /// Do not give back free memory of malloc and other memory outside the heap.
    #[arg(long)]
    no_trim: bool,
    /// How much to give back.
    #[arg(long, value_enum, default_value = "keep")]
    level: LevelArgument,
    /// Also evict clean pages of files that only this process maps: its program and libraries.
    ///
    /// For a process that will not run for a while: it reads the pages again, one by one, when it
    /// continues. The process is stopped meanwhile (SIGSTOP) and then continued (SIGCONT), also on an
    /// error or Ctrl-C, unless it was stopped before. After a SIGKILL of this program, use
    /// `kill -CONT PID`. Needs root, or CAP_SYS_NICE and ownership of both the process and the files;
    /// with --no-heap and --no-trim it needs no squeezer.
    #[arg(long)]
    pub libraries: bool,
    /// Print one line of JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Time limit of the whole operation.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub deadline: Duration,
}

const MANUAL: &str = "\
The squeezer's socket is at the path in SQUEEZER_SOCKET of the process's environment, or else at
/tmp/squeezer-PID.sock, with the PID that the process sees itself; both in the process's own
root, so that it works from outside a container. Only the named process is asked: the kernel says who
listens at the socket.

A process that is stopped or frozen cannot answer: resume it first.

Exit status: 0 on success, 1 on failure (with one line on standard error), 2 for invalid arguments.

Examples:
  squeezer 4242                       collect, trim, show
  squeezer 4242 --level all           also memory that makes the next request fast
  squeezer 4242 --libraries           also clean pages of its libraries
  squeezer 4242 --no-heap --no-trim --libraries
                                      only these; needs no squeezer
  squeezer /run/f.sock --json         by socket, for a program";

/// [`Level`], as the command line has it.
#[derive(Clone, Copy, ValueEnum)]
enum LevelArgument {
    /// Keep what makes the next request fast: compiled code, caches
    Keep,
    /// Give back everything that can be recreated
    All,
}

/// Who is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// By its number.
    Process(u32),
    /// By where its squeezer listens.
    Socket(PathBuf),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::Socket(text.into()));
        }
        match text.parse() {
            Ok(pid) if pid > 0 => Ok(Self::Process(pid)),
            _ => Err("give the number of a process, or a path with a '/' in it".to_owned()),
        }
    }
}

impl Arguments {
    /// What to ask the squeezer for.
    pub fn request(&self) -> Request {
        let level = match self.level {
            LevelArgument::Keep => Level::Keep,
            LevelArgument::All => Level::All,
        };
        Request { heap: !self.no_heap, trim: !self.no_trim, level }
    }

    /// Whether there is anything to ask the squeezer for; asked for nothing at all, it measures.
    pub fn asks_squeezer(&self) -> bool {
        !(self.no_heap && self.no_trim && self.libraries)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "give a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("give a number of seconds above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn processes_and_sockets() {
        assert_eq!("42".parse(), Ok(Target::Process(42)));
        assert_eq!("./42".parse(), Ok(Target::Socket("./42".into())));
        for text in ["0", "-1", "", "4294967296", "java"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn requests() {
        let arguments = parse("x 42").unwrap();
        assert_eq!(arguments.request(), Request::default());
        assert_eq!(arguments.deadline, Duration::from_secs(30));
        let arguments = parse("x 42 --no-heap --level all --deadline 0.5").unwrap();
        assert_eq!(arguments.request(), Request { heap: false, trim: true, level: Level::All });
        assert_eq!(arguments.deadline, Duration::from_millis(500));
        assert!(arguments.asks_squeezer());
        assert!(parse("x 42 --no-heap --no-trim").unwrap().asks_squeezer());
        assert!(!parse("x 42 --no-heap --no-trim --libraries").unwrap().asks_squeezer());
        for wrong in ["x", "x 42 --level some", "x 42 --deadline 0", "x 42 --deadline nan", "x 4 2"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
