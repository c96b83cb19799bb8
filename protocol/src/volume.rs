//! Volumes: files that the host gives to instances, and directories that some of them share.
//!
//! Each is a file system in memory. Into most, the host puts files: instances read them, and may write to single ones
//! that they were given so. The others are for instances to write to.

use crate::bytes;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What is in a volume, and how much may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// The most that its files may hold, in bytes.
    pub limit_bytes: u64,
    /// The most files, directories and links that it may have.
    pub limit_files: u32,
    /// Whether it is for instances to write to. Then nothing of the host's is in it.
    #[serde(default)]
    pub writable: bool,
    /// Whose its own directory is.
    pub owner: FileOwner,
    /// What is in it, each after the directory that it is in.
    pub files: Vec<VolumeFile>,
}

/// A file, directory or link of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeFile {
    /// Its path from the volume's own directory on.
    pub path: String,
    /// Whose it is; nothing to a link.
    pub owner: FileOwner,
    /// What it is.
    pub content: FileContent,
}

/// Whose a file is, in the numbers of the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileOwner {
    /// The user.
    pub user: u16,
    /// The group.
    pub group: u16,
    /// Who may do what: the lowest 12 bits of Linux' mode.
    pub mode: u16,
}

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileContent {
    /// A directory.
    Directory,
    /// A file with these bytes.
    File(#[serde(with = "bytes")] Vec<u8>),
    /// A link to this path. Nobody but the instance follows it.
    Link(String),
}

/// Where an instance has a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeMount {
    /// The volume's number.
    pub volume: u32,
    /// The file of it, in its own directory, that the instance has instead of all.
    #[serde(default)]
    pub file: Option<String>,
    /// The path, in a volume that instances write to, of what the instance has instead of all. If nothing is there, a
    /// directory is made.
    #[serde(default)]
    pub part: Option<String>,
    /// Its path in the instance's root. What is not there of it is made.
    pub target: String,
    /// Whether the instance cannot write to it.
    pub read_only: bool,
}

/// Why something is no [`Volume`] or [`VolumeMount`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidVolume(String);

impl Volume {
    /// Most volumes of a VM: 64 for each of 32 pods.
    pub const MAX_COUNT: usize = 2048;
    /// Most volumes that an instance has.
    pub const MAX_OF_INSTANCE: usize = 64;
    /// Most files, directories and links that the host gives.
    pub const MAX_FILES: usize = 1024;
    /// The most that these hold, in bytes: what a config map or a secret of Kubernetes may have.
    pub const MAX_BYTES: usize = 1 << 20;
    /// The longest JSON of a volume, in bytes.
    pub const MAX_BODY_BYTES: usize = 3 << 20;
    /// The longest path and link, in bytes.
    pub const MAX_PATH_BYTES: usize = 1024;
    /// The longest name, in bytes.
    pub const MAX_NAME_BYTES: usize = 255;
    /// How deep directories are, at most.
    pub const MAX_DEPTH: usize = 8;
    /// The name, in the volume's own directory, that a file has until it is complete.
    pub const NEW_NAME: &'static str = "..squeezy-new";

    /// Checks it against all limits.
    ///
    /// # Errors
    /// One is exceeded, or a path is none or not in a directory.
    pub fn check(&self) -> Result<(), InvalidVolume> {
        let fail = |text: String| Err(InvalidVolume(text));
        if self.limit_bytes == 0 || self.limit_files == 0 {
            return fail("a volume without room".to_owned());
        }
        if self.writable && !self.files.is_empty() {
            return fail("a volume that instances write to has files of the host".to_owned());
        }
        if self.files.len() > Self::MAX_FILES {
            return fail(format!("it has more than {} files", Self::MAX_FILES));
        }
        let mut known = HashMap::new();
        let mut bytes = 0;
        for file in &self.files {
            let path = file.path.as_str();
            let shown = || path.escape_debug().take(80).collect::<String>();
            let names: Vec<&str> = path.split('/').collect();
            if path.len() > Self::MAX_PATH_BYTES || names.len() > Self::MAX_DEPTH {
                return fail(format!(
                    "{}: a path has at most {} bytes and {} names",
                    shown(),
                    Self::MAX_PATH_BYTES,
                    Self::MAX_DEPTH
                ));
            }
            if path == Self::NEW_NAME || !names.iter().all(|name| is_name(name)) {
                return fail(format!("{} is no path within a volume", shown()));
            }
            let parent = path.rsplit_once('/').map(|(parent, _)| parent);
            if parent.is_some_and(|parent| known.get(parent) != Some(&true)) {
                return fail(format!("{} is in no directory", shown()));
            }
            if known.insert(path, file.content == FileContent::Directory).is_some() {
                return fail(format!("{} is there twice", shown()));
            }
            match &file.content {
                FileContent::Directory => {}
                FileContent::File(content) => bytes += content.len(),
                FileContent::Link(to) => {
                    if to.is_empty() || to.len() > Self::MAX_PATH_BYTES || to.contains('\0') {
                        return fail(format!("{} is no link", shown()));
                    }
                }
            }
        }
        if bytes > Self::MAX_BYTES {
            return fail(format!("its files have more than {} MiB", Self::MAX_BYTES >> 20));
        }
        Ok(())
    }
}

impl VolumeMount {
    /// Checks its paths.
    ///
    /// # Errors
    /// The target is no absolute path below the root, the file no name, or the part no path.
    pub fn check(&self) -> Result<(), InvalidVolume> {
        let shown: String = self.target.escape_debug().take(80).collect();
        if !is_path(&self.target) {
            return Err(InvalidVolume(format!(
                "{shown} is no absolute path of at most {} bytes",
                Volume::MAX_PATH_BYTES
            )));
        }
        match (&self.file, &self.part) {
            (Some(name), _) if !is_name(name) => {
                Err(InvalidVolume(format!("{shown}: a file of a volume has no such name")))
            }
            (_, Some(part))
                if part.len() > Volume::MAX_PATH_BYTES || !part.split('/').all(is_name) =>
            {
                Err(InvalidVolume(format!(
                    "{shown}: a part of a volume is a path within it of at most {} bytes",
                    Volume::MAX_PATH_BYTES
                )))
            }
            (Some(_), Some(_)) => {
                Err(InvalidVolume(format!("{shown}: it is a file or a part of a volume, not both")))
            }
            _ => Ok(()),
        }
    }
}

/// Whether something is the name of a file.
pub fn is_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
        && text.len() <= Volume::MAX_NAME_BYTES
        && !text.contains(['/', '\0'])
}

/// Whether something is an absolute path, not of the root itself, of at most [`Volume::MAX_PATH_BYTES`] bytes.
pub fn is_path(text: &str) -> bool {
    let names = text.strip_prefix('/').map(|path| path.split('/'));
    text.len() <= Volume::MAX_PATH_BYTES && names.is_some_and(|mut names| names.all(is_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: FileOwner = FileOwner { user: 0, group: 0, mode: 0o644 };

    fn file(path: &str, content: FileContent) -> VolumeFile {
        VolumeFile { path: path.to_owned(), owner: OWNER, content }
    }

    fn volume(files: Vec<VolumeFile>) -> Volume {
        Volume { limit_bytes: 4096, limit_files: 10, writable: false, owner: OWNER, files }
    }

    fn data(bytes: usize) -> FileContent {
        FileContent::File(vec![b'x'; bytes])
    }

    #[test]
    fn bytes_survive_as_they_are() {
        let all: Vec<u8> = (0..=255).collect();
        let volume = volume(vec![file("a", FileContent::File(all))]);
        let text = serde_json::to_string(&volume).unwrap();
        assert_eq!(serde_json::from_str::<Volume>(&text).unwrap(), volume);
        assert!(serde_json::from_str::<FileContent>(r#"{"file":"*"}"#).is_err());
    }

    #[test]
    fn the_largest_fits_its_body() {
        let name = "\u{1}".repeat(60);
        let mut files: Vec<_> = (1..Volume::MAX_FILES)
            .map(|number| file(&format!("{name}{number}"), data(1)))
            .collect();
        files.push(file("large", data(Volume::MAX_BYTES - files.len())));
        let volume = volume(files);
        volume.check().unwrap();
        assert!(serde_json::to_vec(&volume).unwrap().len() < Volume::MAX_BODY_BYTES);
    }

    #[test]
    fn what_is_in_a_volume_is_checked() {
        let link = |to: &str| FileContent::Link(to.to_owned());
        let directory = || FileContent::Directory;
        volume(vec![file("a", directory()), file("a/b", data(1)), file("c", link("/etc"))])
            .check()
            .unwrap();
        let deep: Vec<_> =
            (1..10).map(|depth| file(&vec!["d"; depth].join("/"), directory())).collect();
        for (files, says) in [
            (vec![file("", data(1))], "no path"),
            (vec![file("/a", data(1))], "no path"),
            (vec![file("..", directory())], "no path"),
            (vec![file("a\0", data(1))], "no path"),
            (vec![file(Volume::NEW_NAME, data(1))], "no path"),
            (vec![file(&"x".repeat(256), data(1))], "no path"),
            (vec![file("a/b", data(1))], "in no directory"),
            (vec![file("a", data(1)), file("a/b", data(1))], "in no directory"),
            (vec![file("a", link("/etc")), file("a/b", data(1))], "in no directory"),
            (vec![file("a", data(1)), file("a", directory())], "twice"),
            (vec![file("a", link(""))], "no link"),
            (vec![file("a", data(Volume::MAX_BYTES)), file("b", data(1))], "1 MiB"),
            (deep, "8 names"),
            (
                (0..=Volume::MAX_FILES).map(|name| file(&name.to_string(), data(0))).collect(),
                "1024 files",
            ),
        ] {
            let error = volume(files).check().expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
        let mut full = volume(Vec::new());
        full.limit_files = 0;
        full.check().unwrap_err();
        let mut both = volume(vec![file("a", data(1))]);
        both.writable = true;
        both.check().unwrap_err();
    }

    #[test]
    fn where_a_volume_goes_is_checked() {
        let mount = |target: &str, file: Option<&str>| VolumeMount {
            volume: 0,
            file: file.map(str::to_owned),
            part: None,
            target: target.to_owned(),
            read_only: true,
        };
        mount("/etc/hosts", Some("hosts")).check().unwrap();
        let part = |part: &str| VolumeMount { part: Some(part.to_owned()), ..mount("/a", None) };
        part("logs/today").check().unwrap();
        let long = ["x"; Volume::MAX_PATH_BYTES].join("/");
        for wrong in ["", "/logs", "logs/", "logs//today", "../logs", "logs/.", "logs\0", &long] {
            let error = part(wrong).check().expect_err(wrong).to_string();
            assert!(error.contains("a path within it"), "{error}");
        }
        let both = VolumeMount { file: Some("hosts".to_owned()), ..part("logs") };
        assert!(both.check().unwrap_err().to_string().contains("not both"));
        for (target, file) in [
            ("etc", None),
            ("/", None),
            ("/a//b", None),
            ("/a/../b", None),
            ("/a\0", None),
            ("/a", Some("..")),
            ("/a", Some("a/b")),
        ] {
            mount(target, file).check().expect_err(target);
        }
    }
}
