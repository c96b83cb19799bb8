//! Files that are written as a whole or not at all.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A file that is to be written in the end. Until then what it holds stays, and what goes wrong with it is
/// known from the beginning.
pub struct WholeFile {
    path: PathBuf,
    /// Written first, and then renamed; nothing where the path is no ordinary file, such as a pipe.
    aside: Option<PathBuf>,
}

impl WholeFile {
    /// Makes sure that the file can be written.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it.
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
            // It is not there if it was renamed.
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
