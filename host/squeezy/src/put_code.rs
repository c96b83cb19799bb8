//! What `squeezy serve` runs of this program in a sandbox, to make a drive of code that nobody vouches for.

use crate::output;
use rustix::{fs::Mode, process::umask};
use squeezy_archive::{Code, PutError};
use std::{fs::File, io::BufReader, path::PathBuf, process::ExitCode};

/// Puts an action's code into a directory.
///
/// The daemon runs this in a sandbox. The first line says that it runs, the second how many bytes the code is going to
/// take on the disk.
#[derive(clap::Args)]
pub struct Args {
    /// The code.
    code: PathBuf,
    /// Where it is put, or unpacked.
    directory: PathBuf,
    /// The file for code that is not unpacked.
    #[arg(long, value_name = "NAME")]
    file: String,
    /// Archives are not unpacked.
    #[arg(long)]
    packed: bool,
}

/// The first line: from then on, what fails is not the sandbox.
pub const RUNS: &str = "runs";

/// What comes before the number of bytes.
pub const TAKES: &str = "takes ";

/// What every reason begins with why code is not what it should be.
pub const WRONG: &str = "The archive";

/// Puts it; why that fails is the last line of standard error.
pub fn main(args: &Args) -> ExitCode {
    // Whatever the daemon's own files are to be.
    umask(Mode::from_raw_mode(0o022));
    output::print(RUNS);
    match put(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(error);
            ExitCode::FAILURE
        }
    }
}

fn put(args: &Args) -> Result<(), PutError> {
    let code = Code::of(BufReader::new(File::open(&args.code)?), &args.file, args.packed)?;
    output::print(format_args!("{TAKES}{}", code.bytes()));
    code.put(&args.directory)
}
