//! Where lines go: to standard output, or to a file that is kept small.

use super::log_warning;
use crate::diagnostics::is_journal;
use std::{
    env,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// A file that has reached this size, in bytes, is put aside under another name.
const FILE_BYTES: u64 = 16 << 20;

/// How many files that were put aside are kept.
const KEPT: usize = 4;

/// Where lines go.
#[derive(Debug)]
pub enum Output {
    /// Standard output.
    Standard {
        /// Whether it is systemd's journal.
        is_journal: bool,
    },
    /// A file.
    File(Rotated),
}

/// A file that is put aside when it is large: as `NAME.1`, and what was that as `NAME.2`.
#[derive(Debug)]
pub struct Rotated {
    path: PathBuf,
    /// The file and its size in bytes; `None` while it cannot be opened.
    open: Option<(File, u64)>,
    most_bytes: u64,
    /// Whether its last line is incomplete, because the disk was full.
    is_torn: bool,
}

impl Output {
    /// Standard output.
    pub fn standard() -> Self {
        Self::Standard { is_journal: is_journal(io::stdout(), env::var_os("JOURNAL_STREAM")) }
    }

    /// The file at this path, which is created if necessary.
    pub fn file(path: &Path) -> io::Result<Self> {
        let mut file =
            Rotated { path: path.to_owned(), open: None, most_bytes: FILE_BYTES, is_torn: false };
        file.open()?;
        Ok(Self::File(file))
    }

    /// Whether the reader records the time of each line itself.
    pub fn has_own_time(&self) -> bool {
        matches!(self, Self::Standard { is_journal: true })
    }

    /// Follows a file that somebody else has moved away.
    pub fn renew(&mut self) {
        if let Self::File(file) = self {
            file.renew();
        }
    }

    /// Writes a line; returns whether it was written.
    pub fn write(&mut self, line: &str) -> bool {
        match self {
            Self::Standard { .. } => {
                // Nobody may be reading; then nobody misses it either.
                let _ = writeln!(io::stdout(), "{line}");
                true
            }
            Self::File(file) => file.write(line).is_ok(),
        }
    }
}

impl Rotated {
    fn open(&mut self) -> io::Result<()> {
        // It may quote what functions print.
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)?;
        let bytes = file.metadata()?.len();
        self.open = Some((file, bytes));
        Ok(())
    }

    fn renew(&mut self) {
        let Some((file, _)) = &self.open else { return };
        let is_same = match (fs::metadata(&self.path), file.metadata()) {
            (Ok(there), Ok(open)) => (there.dev(), there.ino()) == (open.dev(), open.ino()),
            _ => false,
        };
        if !is_same {
            self.open = None;
        }
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        if self.open.as_ref().is_some_and(|(_, bytes)| *bytes >= self.most_bytes) {
            self.keep_small();
        }
        if self.open.is_none() {
            self.open()?;
        }
        let Some((file, bytes)) = &mut self.open else { return Ok(()) };
        let whole = if self.is_torn { format!("\n{line}\n") } else { format!("{line}\n") };
        let written = file.write_all(whole.as_bytes());
        // After a failure it is not known how much of it is there.
        self.is_torn = written.is_err();
        *bytes += whole.len() as u64;
        written
    }

    /// For when it is large.
    fn keep_small(&mut self) {
        // What somebody else has moved away is neither to be cut, nor is what is there now to be put aside.
        self.renew();
        let Some((file, bytes)) = &mut self.open else { return };
        if !file.metadata().is_ok_and(|open| open.is_file()) {
            // A device or a pipe keeps nothing. Otherwise each line would ask.
            *bytes = 0;
        } else if let Err(error) = self.put_aside() {
            self.begin_anew(&error);
        }
    }

    fn put_aside(&mut self) -> io::Result<()> {
        if self.path.is_symlink() {
            // Others may need it, as /dev/stderr.
            return Err(io::Error::other("it is a link"));
        }
        for number in (1..KEPT).rev() {
            rename_if_there(&self.aside(number), &self.aside(number + 1))?;
        }
        // Somebody else may have done so just now.
        rename_if_there(&self.path, &self.aside(1))?;
        self.open = None;
        Ok(())
    }

    /// Cuts the file that cannot be put aside: it is to stay small, and no line is to be lost that comes from now on.
    fn begin_anew(&mut self, error: &io::Error) {
        let Some((file, bytes)) = &mut self.open else { return };
        let outcome = match file.set_len(0) {
            Ok(()) => "what was in it has been deleted",
            // It may be for appending only.
            Err(_) => "it goes on as it is",
        };
        // Otherwise each line would try.
        *bytes = 0;
        let remedy = if self.path.is_symlink() {
            "Name the file that it leads to"
        } else {
            "Have the daemon's user own its directory"
        };
        log_warning(&format!(
            "the log file {} cannot be put aside: {error}; {outcome}. {remedy}",
            self.path.display()
        ));
    }

    fn aside(&self, number: usize) -> PathBuf {
        let mut name: OsString = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn small(directory: &Path, most_bytes: u64) -> Rotated {
        let path = directory.join("squeezy.log");
        Rotated { path, open: None, most_bytes, is_torn: false }
    }

    #[test]
    fn a_file_is_kept_small_and_so_is_their_number() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = small(directory.path(), 100);
        for number in 0..100 {
            file.write(&format!("line {number:04}")).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let right =
            ["squeezy.log", "squeezy.log.1", "squeezy.log.2", "squeezy.log.3", "squeezy.log.4"];
        assert_eq!(names, right);
        let mut last = Vec::new();
        for name in right.iter().rev() {
            let text = fs::read_to_string(directory.path().join(name)).unwrap();
            assert!(text.len() <= 110, "{name}: {}", text.len());
            last.extend(text.lines().map(str::to_owned));
        }
        let count = last.len();
        let right: Vec<_> = (100 - count..100).map(|number| format!("line {number:04}")).collect();
        assert_eq!(last, right);
        let mode = fs::metadata(directory.path().join("squeezy.log")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_cannot_be_put_aside_begins_anew_and_loses_no_line_that_comes() {
        let directory = tempfile::tempdir().unwrap();
        // As in a directory of somebody else's, which would not be in root's way.
        fs::write(directory.path().join("squeezy.log.3"), "").unwrap();
        fs::create_dir(directory.path().join("squeezy.log.4")).unwrap();
        let mut file = small(directory.path(), 100);
        for number in 0..100 {
            file.write(&format!("line {number:04}")).unwrap();
            let text = fs::read_to_string(directory.path().join("squeezy.log")).unwrap();
            assert!(text.len() <= 110, "{}", text.len());
            assert!(text.ends_with(&format!("line {number:04}\n")), "{text}");
        }
        assert!(!directory.path().join("squeezy.log.1").exists());
    }

    #[test]
    fn a_device_goes_on_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("squeezy.log");
        symlink("/dev/null", &path).unwrap();
        let mut file = small(directory.path(), 100);
        for _ in 0..100 {
            file.write("somewhere").unwrap();
        }
        assert!(path.is_symlink());
        assert!(!directory.path().join("squeezy.log.1").exists());
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_kept_small() {
        let directory = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (directory.path().join("squeezy.log"), directory.path().join("a"));
        fs::write(&elsewhere, "").unwrap();
        symlink(&elsewhere, &path).unwrap();
        let mut file = small(directory.path(), 100);
        for number in 0..100 {
            file.write(&format!("line {number:04}")).unwrap();
            let text = fs::read_to_string(&elsewhere).unwrap();
            assert!(text.len() <= 110, "{}", text.len());
            assert!(text.ends_with(&format!("line {number:04}\n")), "{text}");
        }
        assert!(path.is_symlink());
    }

    #[test]
    fn a_large_file_that_was_just_moved_away_loses_nothing() {
        for has_another in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let (path, old) = (directory.path().join("squeezy.log"), directory.path().join("old"));
            let mut file = small(directory.path(), 100);
            let before = "x".repeat(100);
            file.write(&before).unwrap();
            fs::rename(&path, &old).unwrap();
            if has_another {
                fs::write(&path, "").unwrap();
            }
            file.write("after").unwrap();
            assert_eq!(fs::read_to_string(&old).unwrap(), before + "\n");
            assert_eq!(fs::read_to_string(&path).unwrap(), "after\n");
            assert!(!directory.path().join("squeezy.log.1").exists());
        }
    }

    #[test]
    fn what_was_there_before_stays_and_counts() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("squeezy.log"), "x".repeat(99) + "\n").unwrap();
        let mut file = small(directory.path(), 100);
        file.write("first").unwrap();
        file.write("second").unwrap();
        let aside = fs::read_to_string(directory.path().join("squeezy.log.1")).unwrap();
        assert!(aside.ends_with("x\nfirst\n"), "{aside}");
        assert_eq!(fs::read_to_string(directory.path().join("squeezy.log")).unwrap(), "second\n");
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = small(directory.path(), 1000);
        file.write("before").unwrap();
        fs::rename(directory.path().join("squeezy.log"), directory.path().join("old")).unwrap();
        file.renew();
        file.write("after").unwrap();
        assert_eq!(fs::read_to_string(directory.path().join("squeezy.log")).unwrap(), "after\n");
        // Nor is it lost if its directory is gone for a while.
        fs::rename(directory.path(), directory.path().with_extension("away")).unwrap();
        file.renew();
        assert!(file.write("lost").is_err());
        fs::rename(directory.path().with_extension("away"), directory.path()).unwrap();
        file.write("again").unwrap();
        let text = fs::read_to_string(directory.path().join("squeezy.log")).unwrap();
        assert_eq!(text, "after\nagain\n");
    }

    #[test]
    fn a_full_disk_loses_lines_and_nothing_else() {
        let full = Path::new("/dev/full");
        let mut file =
            Rotated { path: full.to_owned(), open: None, most_bytes: 1000, is_torn: false };
        assert!(file.write("lost").is_err() && file.is_torn);
        assert!(file.write("lost, too").is_err());
    }
}
