//! Which images have been pulled.

use crate::serve::{state::write_whole, tenants::Tenancy};
use serde::{Deserialize, Serialize};
use squeezy_openwhisk::{Digest, Namespace, now_ms};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Version of the file's format.
const VERSION: u32 = 1;

/// How many of a namespace are noted, other than the operator's: the file is written whole.
const MOST_OF_ONE: usize = 250;

/// An image that has been pulled for a namespace. Several may have the same one, and know nothing of each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PulledImage {
    /// Who has asked for it.
    pub namespace: Namespace,
    /// Its registry and its name there.
    pub repository: String,
    /// The tag by which it was last asked for, if it was by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Its digest in the registry.
    pub digest: Digest,
    /// The digest of the image that has been made of it.
    pub blob: Digest,
    /// What that takes on the disk, in bytes.
    pub bytes: u64,
    /// When it was pulled, in milliseconds since 1970.
    pub pulled_ms: u64,
    /// When it was last used: until then an action had it, or somebody asked for it.
    pub used_ms: u64,
}

impl PulledImage {
    /// Whether it is that of a namespace, with this digest in this repository.
    pub fn is_for(&self, namespace: &Namespace, repository: &str, digest: &Digest) -> bool {
        self.namespace == *namespace && self.repository == repository && self.digest == *digest
    }
}

/// All of them, in a file.
#[derive(Debug)]
pub struct Index {
    path: PathBuf,
    images: Vec<PulledImage>,
}

#[derive(Serialize, Deserialize)]
struct Contents<I> {
    version: u32,
    images: I,
}

impl Index {
    /// Reads the file. It can be made again by pulling, so what cannot be read is left out, and said.
    pub fn open(path: PathBuf, warn: impl FnOnce(&str)) -> Self {
        let images = read(&path).unwrap_or_else(|error| {
            warn(&format!(
                "{}: {error}: images that no action uses have to be pulled again",
                path.display()
            ));
            Vec::new()
        });
        Self { path, images }
    }

    /// All of them.
    pub fn images(&self) -> &[PulledImage] {
        &self.images
    }

    /// One with this digest in this repository, of any namespace.
    pub fn find(&self, repository: &str, digest: &Digest) -> Option<&PulledImage> {
        self.images.iter().find(|image| image.repository == repository && image.digest == *digest)
    }

    /// Adds one that a namespace has asked for, unless that is gone.
    pub fn insert_for(&mut self, asker: &Tenancy, image: PulledImage) -> io::Result<()> {
        if asker.is_there() { self.insert(image) } else { Ok(()) }
    }

    /// Adds one, in place of what there was of it, or of what its namespace has not used for longest, if it has too many.
    fn insert(&mut self, image: PulledImage) -> io::Result<()> {
        let mut images = self.images.clone();
        images.retain(|other| !other.is_for(&image.namespace, &image.repository, &image.digest));
        let own = images.iter().enumerate().filter(|(_, other)| other.namespace == image.namespace);
        let own: Vec<_> = own.map(|(at, other)| (other.used_ms, at)).collect();
        if own.len() >= MOST_OF_ONE
            && !image.namespace.is_guest()
            && let Some((_, oldest)) = own.into_iter().min()
        {
            images.remove(oldest);
        }
        images.push(image);
        self.replace(images)
    }

    /// Removes those that a test says.
    pub fn remove(&mut self, is_one: impl Fn(&PulledImage) -> bool) -> io::Result<()> {
        let mut images = self.images.clone();
        images.retain(|image| !is_one(image));
        if images.len() == self.images.len() { Ok(()) } else { self.replace(images) }
    }

    /// Notes that those that a test says are used now. It is written with the next change: who is killed before
    /// that only forgets which one was used last. A tag is that by which they were asked for.
    pub fn touch(&mut self, tag: Option<&str>, is_one: impl Fn(&PulledImage) -> bool) {
        for image in self.images.iter_mut().filter(|image| is_one(image)) {
            image.used_ms = now_ms();
            image.tag = tag.map(str::to_owned).or(image.tag.take());
        }
    }

    fn replace(&mut self, images: Vec<PulledImage>) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(&Contents { version: VERSION, images: &images })?;
        write_whole(&self.path, &text)?;
        self.images = images;
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<Vec<PulledImage>> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let contents: Contents<Vec<PulledImage>> = serde_json::from_slice(&text)?;
    match contents.version {
        VERSION => Ok(contents.images),
        version => Err(io::Error::other(format!(
            "it has version {version}, this squeezy supports {VERSION}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(repository: &str, number: u8) -> PulledImage {
        let digest = Digest::of_sum([number; 32]);
        let repository = repository.to_owned();
        PulledImage {
            namespace: Namespace::guest(),
            repository,
            tag: None,
            blob: digest.clone(),
            digest,
            bytes: 1,
            pulled_ms: 1,
            used_ms: 1,
        }
    }

    #[test]
    fn it_is_there_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pulled.json");
        let open = || Index::open(path.clone(), |problem| panic!("{problem}"));
        let mut index = open();
        for (repository, number) in [("a", 1), ("b", 1), ("a", 2), ("a", 1)] {
            index.insert(image(repository, number)).unwrap();
        }
        index.touch(None, |image| image.repository == "b");
        index.remove(|image| image.digest == Digest::of_sum([2; 32])).unwrap();
        let again = open();
        assert_eq!(again.images(), index.images());
        assert_eq!(again.images().len(), 2);
        assert!(again.find("b", &Digest::of_sum([1; 32])).is_some_and(|image| image.used_ms > 1));
        assert!(again.find("b", &Digest::of_sum([2; 32])).is_none());
    }

    #[test]
    fn one_namespace_has_so_many_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pulled.json");
        let namespace: Namespace = "acme".parse().unwrap();
        let of_acme = |number: u64| PulledImage {
            namespace: namespace.clone(),
            used_ms: 1000 - number,
            ..image(&number.to_string(), 1)
        };
        let mut images: Vec<_> = (0..MOST_OF_ONE as u64).map(of_acme).collect();
        images.push(image("guest's", 1));
        let mut index = Index { path, images };
        index.insert(of_acme(0)).unwrap();
        index.insert(of_acme(999)).unwrap();
        assert_eq!(index.images().len(), MOST_OF_ONE + 1);
        let digest = Digest::of_sum([1; 32]);
        let oldest = (MOST_OF_ONE - 1).to_string();
        assert!(index.find(&oldest, &digest).is_none() && index.find("0", &digest).is_some());
        assert!(index.find("guest's", &digest).is_some());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_said_and_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pulled.json");
        for (text, part) in
            [("", "EOF"), ("{\"version\": 2, \"images\": []}", "version 2"), ("[]", "invalid")]
        {
            fs::write(&path, text).unwrap();
            let mut said = String::new();
            let mut index = Index::open(path.clone(), |problem| said = problem.to_owned());
            assert!(index.images().is_empty() && said.contains(part), "{said}");
            index.insert(image("a", 1)).unwrap();
        }
    }
}
