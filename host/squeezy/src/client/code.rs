//! Code that a function is made from: which kind it is, and how it is sent.

use super::ClientError;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytesize::ByteSize;
use serde_json::{Value, json};
use squeezy_openwhisk::kind::{Kind, is_binary, is_program};
use squeezy_protocol::MAX_CODE_BYTES;
use std::{
    fs::{self, File},
    io::{Cursor, Read},
    path::{Path, PathBuf},
};
use zip::ZipArchive;

/// Extensions of files with code.
const EXTENSIONS: [(&str, &str); 6] = [
    ("py", "python:default"),
    ("js", "nodejs:default"),
    ("cjs", "nodejs:default"),
    ("jar", "java:default"),
    ("sh", "native:default"),
    ("zip", ARCHIVE),
];

/// Of an extension that does not say the kind.
const ARCHIVE: &str = "";

/// Files in an archive that tell its kind, in this order.
const TELLING: [(&str, &str); 5] = [
    ("__main__.py", "python:default"),
    ("package.json", "nodejs:default"),
    ("index.js", "nodejs:default"),
    ("META-INF/MANIFEST.MF", "java:default"),
    ("exec", "native:default"),
];

/// A file with code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeFile {
    path: PathBuf,
    kind: String,
    main: Option<String>,
}

impl CodeFile {
    /// This file, if it has code: `kind` has been given, or it has an extension of code, or begins like a
    /// program.
    pub fn find(
        path: &Path,
        kind: Option<&str>,
        main: Option<&str>,
    ) -> Result<Option<Self>, ClientError> {
        if !path.is_file() {
            // Anything else may be a directory, or the name of an image.
            let is_code = kind.is_some() || (!path.exists() && kind_by_extension(path).is_some());
            let missing = || ClientError::file(path, &"there is no such file");
            return if is_code { Err(missing()) } else { Ok(None) };
        }
        let kind = match kind {
            Some(kind) => Some(kind.to_owned()),
            None => kind_of(path)?.map(str::to_owned),
        };
        let main = main.map(str::to_owned);
        Ok(kind.map(|kind| Self { path: path.to_owned(), kind, main }))
    }

    /// The function's default name: the file's, without its extension.
    pub fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// As the daemon takes it.
    pub fn exec(&self) -> Result<Value, ClientError> {
        let code = read(&self.path)?;
        let (binary, code) = match String::from_utf8(code) {
            Ok(text) if !is_binary(text.as_bytes()) || text.starts_with("#!") => (false, text),
            Ok(text) => (true, BASE64_STANDARD.encode(text)),
            Err(error) => (true, BASE64_STANDARD.encode(error.as_bytes())),
        };
        let mut exec = json!({ "kind": self.kind, "binary": binary, "code": code });
        if let Some(main) = &self.main {
            exec["main"] = main.as_str().into();
        }
        Ok(exec)
    }
}

/// The kind that a file's extension says, or [`ARCHIVE`]; `None` if it is not one of code.
fn kind_by_extension(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_string_lossy().to_ascii_lowercase();
    EXTENSIONS.iter().find(|(known, _)| *known == extension).map(|(_, kind)| *kind)
}

/// The kind of a file's code; `None` if it has none.
fn kind_of(path: &Path) -> Result<Option<&'static str>, ClientError> {
    match kind_by_extension(path) {
        Some(ARCHIVE) => return kind_of_archive(path).map(Some),
        Some(kind) => return Ok(Some(kind)),
        None => {}
    }
    let mut begins = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut begins));
    read.map_err(|error| ClientError::file(path, &error))?;
    Ok(is_program(&begins).then_some("native:default"))
}

fn kind_of_archive(path: &Path) -> Result<&'static str, ClientError> {
    let archive = ZipArchive::new(Cursor::new(read(path)?));
    let archive = archive.map_err(|error| ClientError::file(path, &error))?;
    let telling = TELLING.iter().find(|(name, _)| archive.index_for_name(name).is_some());
    telling.map(|(_, kind)| *kind).ok_or_else(|| ClientError::UnknownKind {
        path: path.to_owned(),
        telling: TELLING.map(|(name, _)| name).join(", "),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, ClientError> {
    let failed = |error| ClientError::file(path, &error);
    // In base64 it is a third longer.
    let most = MAX_CODE_BYTES as u64;
    let length = path.metadata().map_err(failed)?.len();
    if length > most {
        let problem = format!(
            "it has {}, and code may have {} as text or in base64",
            ByteSize(length),
            ByteSize(most)
        );
        return Err(ClientError::file(path, &problem));
    }
    fs::read(path).map_err(failed)
}

/// What an action's code is, as the daemon describes it, in bytes.
pub fn decode(exec: &Value) -> Result<Vec<u8>, ClientError> {
    let Some(code) = exec["code"].as_str() else { return Err(ClientError::NoCode) };
    if exec["binary"].as_bool() == Some(true) {
        BASE64_STANDARD.decode(code).map_err(|_| ClientError::NoCode)
    } else {
        Ok(code.into())
    }
}

/// The full name of a kind, as far as it is known here.
pub fn full_name(kind: &str) -> &str {
    Kind::find(kind).map_or(kind, |kind| kind.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use zip::{ZipWriter, write::SimpleFileOptions};

    fn archive(name: &str) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        writer.start_file(name, SimpleFileOptions::default()).unwrap();
        writer.write_all(b"content").unwrap();
        writer.finish().unwrap().into_inner()
    }

    #[test]
    fn a_kind_is_seen_from_the_file() {
        let directory = tempfile::tempdir().unwrap();
        for (name, content, kind) in [
            ("a.py", b"def main(a): return a".to_vec(), Some("python:3.11")),
            ("a.js", b"".to_vec(), Some("nodejs:20")),
            ("a.jar", archive("Hello.class"), Some("java:17")),
            ("p.zip", archive("__main__.py"), Some("python:3.11")),
            ("n.zip", archive("package.json"), Some("nodejs:20")),
            ("x.ZIP", archive("exec"), Some("native:1")),
            ("program", b"\x7fELF\x02".to_vec(), Some("native:1")),
            ("script", b"#!/bin/sh".to_vec(), Some("native:1")),
            ("image.tar", b"tar".to_vec(), None),
        ] {
            let path = directory.path().join(name);
            fs::write(&path, &content).unwrap();
            let found = CodeFile::find(&path, None, None).unwrap();
            assert_eq!(found.as_ref().map(|found| full_name(&found.kind)), kind, "{name}");
            let Some(found) = found else { continue };
            assert_eq!(decode(&found.exec().unwrap()).unwrap(), content, "{name}");
            let given = CodeFile::find(&path, Some("native"), Some("m")).unwrap().unwrap();
            assert_eq!(given.exec().unwrap()["main"], "m");
            assert_eq!(given.kind, "native");
        }
        fs::write(directory.path().join("what.zip"), archive("what")).unwrap();
        fs::write(directory.path().join("none.zip"), "PK").unwrap();
        File::create(directory.path().join("long.py")).unwrap().set_len(49 << 20).unwrap();
        fs::create_dir(directory.path().join("directory.js")).unwrap();
        for no_code in ["missing", "directory.js"] {
            let found = CodeFile::find(&directory.path().join(no_code), None, None).unwrap();
            assert_eq!(found, None, "{no_code}");
        }
        for (name, part) in [
            ("what.zip", "--kind"),
            ("none.zip", "none.zip: "),
            ("missing.py", "missing.py: there is no such file"),
        ] {
            let error = CodeFile::find(&directory.path().join(name), None, None).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        let long = CodeFile::find(&directory.path().join("long.py"), None, None).unwrap().unwrap();
        let error = long.exec().unwrap_err().to_string();
        assert!(error.contains("it has 49.0 MiB, and code may have 48.0 MiB"), "{error}");
    }
}
