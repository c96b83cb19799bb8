//! Where an action's code is, and putting it there.

use crate::{init::Given, refused::Refused};
use squeezy_archive::{Code, PutError};
use std::{
    fs::File,
    io::{Cursor, Read},
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
    /// Replaces what is there by this code. Code that is in a directory already stays there: returns where it is.
    pub fn put(&self, given: Given) -> Result<Self, Refused> {
        match given {
            Given::Code(code) => {
                let looked = Code::of(Cursor::new(code), &self.file, self.packed);
                looked.and_then(|code| code.put(&self.directory)).map_err(refused)?;
                Ok(self.clone())
            }
            Given::Directory(directory) if directory.is_dir() => {
                Ok(Self { directory, ..self.clone() })
            }
            Given::Directory(directory) => {
                let text = format!("There is no directory {}.", directory.display());
                Err(Refused::action(text))
            }
        }
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

fn refused(error: PutError) -> Refused {
    Refused::action(match error {
        PutError::Full => "The code does not fit into the instance's files, which may take half of its memory: raise the action's memory limit.".to_owned(),
        error => error.to_string(),
    })
}
