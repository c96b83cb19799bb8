//! Puts an action's code where its process finds it.

use crate::{
    archive::{empty, unpack},
    refused::Refused,
};
use squeezy_protocol::is_archive;
use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

/// The machine that programs are for, in the words of ELF's header.
const X86_64: [u8; 2] = [62, 0];

/// Where code goes.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Its directory.
    pub directory: PathBuf,
    /// The file in it for what is not unpacked.
    pub file: String,
    /// Whether archives are not unpacked either.
    pub packed: bool,
}

impl Layout {
    /// Replaces what is there by this code.
    pub fn put(&self, code: &[u8]) -> Result<(), Refused> {
        let failed =
            |error: io::Error| Refused::action(format!("The code cannot be stored: {error}."));
        empty(&self.directory).map_err(failed)?;
        if is_archive(code) && !self.packed {
            return unpack(code, &self.directory);
        }
        let mut options = File::options();
        let made = options.write(true).create(true).mode(0o755).open(self.program());
        made.and_then(|mut file| file.write_all(code)).map_err(failed)
    }

    /// The file, which a native action executes.
    pub fn program(&self) -> PathBuf {
        self.directory.join(&self.file)
    }

    /// Checks that the file is there and may be executed. A system that cannot execute a program takes it for
    /// a script of the shell instead.
    pub fn check_program(&self) -> Result<(), Refused> {
        let name = &self.file;
        let mut head = [0; 20];
        let read = File::open(self.program()).and_then(|mut file| file.read(&mut head));
        let problem = match read {
            Err(_) => "is not there, though it would be the action",
            Ok(2..) if head.starts_with(b"#!") => return Ok(()),
            Ok(20) if head.starts_with(b"\x7fELF\x02") && head[18..] == X86_64 => return Ok(()),
            Ok(4..) if head.starts_with(b"\x7fELF") => {
                "is a program for another machine: build it for Linux on x86-64"
            }
            Ok(_) => "is neither a program for Linux nor a script that begins with #!",
        };
        Err(Refused::action(format!("The action cannot be executed: {name:?} {problem}.")))
    }
}
