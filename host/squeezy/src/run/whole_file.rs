//! Files that are written atomically.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A file to be written at the end of a run. Until then its contents stay as they are; whether it
/// can be written is checked at the start.
pub struct WholeFile {
    path: PathBuf,
    /// Temporary file that is renamed at the end; `None` if the path is not a regular file but, for
    /// instance, a pipe.
    aside: Option<PathBuf>,
}

impl WholeFile {
    /// Checks that the file can be written.
    pub fn new(path: &Path) -> io::Result<Self> {
        let special = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
        let aside = (!special).then(|| {
            let mut aside = path.as_os_str().to_owned();
            aside.push(".part");
            PathBuf::from(aside)
        });
        match &aside {
            Some(aside) => fs::write(aside, "")?,
            None => drop(fs::OpenOptions::new().write(true).open(path)?),
        }
        Ok(Self { path: path.to_owned(), aside })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file's contents.
    pub fn write(&self, text: &str) -> io::Result<()> {
        match &self.aside {
            Some(aside) => {
                fs::write(aside, text)?;
                fs::rename(aside, &self.path)
            }
            None => fs::write(&self.path, text),
        }
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(aside) = &self.aside {
            // Fails if the file has been renamed already.
            let _ = fs::remove_file(aside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_it_was_or_all_that_it_is_to_be() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "earlier").unwrap();
        drop(WholeFile::new(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "earlier");
        let file = WholeFile::new(&path).unwrap();
        file.write("later").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "later");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(WholeFile::new(&directory.path().join("missing/file")).is_err());
        assert!(WholeFile::new(directory.path()).is_err(), "a directory");
        WholeFile::new(Path::new("/dev/null")).unwrap().write("").unwrap();
    }
}
