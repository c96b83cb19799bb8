//! The kinds of actions that are made from code.

use serde_json::{Value, json};
use squeezy_protocol::is_archive;
use std::num::NonZeroU16;

/// The kind of an action that is an image.
pub const IMAGE: &str = "blackbox";

/// The image that OpenWhisk's clients name for a native program.
const SKELETON: &str = "openwhisk/dockerskeleton";

/// A kind of action that is made from code, which an image in `runtimes/` runs.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name, such as `python:3.11`.
    pub name: &'static str,
    /// Other names for it; the one with `default` is what clients say who do not care.
    aliases: &'static [&'static str],
    /// The image that runs it.
    pub image: &'static str,
    /// Its folder in `runtimes/`.
    pub folder: &'static str,
    /// The file that its runtime finds code in that is not unpacked.
    pub file: &'static str,
    /// Whether archives are not unpacked.
    pub packed: bool,
    /// Whether code that is a text can be run; otherwise it is an archive.
    pub takes_text: bool,
    /// Whether code can be a program.
    pub takes_programs: bool,
    /// Whether the name of the entry point has no default.
    pub requires_main: bool,
    /// Whether an instance can serve several calls at a time.
    pub serves_several: bool,
}

/// All of them.
pub const KINDS: [Kind; 4] = [
    Kind {
        name: "python:3.11",
        aliases: &["python:default", "python:3", "python"],
        image: "runtime-python",
        folder: "python",
        file: "__main__.py",
        packed: false,
        takes_text: true,
        takes_programs: false,
        requires_main: false,
        serves_several: false,
    },
    Kind {
        name: "nodejs:20",
        aliases: &["nodejs:default", "nodejs"],
        image: "runtime-node",
        folder: "node",
        file: "action.js",
        packed: false,
        takes_text: true,
        takes_programs: false,
        requires_main: false,
        serves_several: true,
    },
    Kind {
        name: "native:1",
        aliases: &["native:default", "native"],
        image: "runtime-native",
        folder: "native",
        file: "exec",
        packed: false,
        takes_text: true,
        takes_programs: true,
        requires_main: false,
        serves_several: false,
    },
    Kind {
        name: "java:17",
        aliases: &["java:default", "java"],
        image: "runtime-java",
        folder: "java",
        file: "action.jar",
        packed: true,
        takes_text: false,
        takes_programs: false,
        requires_main: true,
        serves_several: false,
    },
];

impl Kind {
    /// The kind that a client means; `None` if there is none.
    pub fn find(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name || kind.aliases.contains(&name))
    }

    /// The kind that a client means who names a kind and perhaps an image, and gives code. OpenWhisk's
    /// clients call a native program a `blackbox` with a certain image; a `blackbox` without one says
    /// nothing about what would run the code.
    pub fn find_for(name: &str, image: Option<&str>) -> Option<&'static Self> {
        match (name, image) {
            (IMAGE, Some(SKELETON)) => Self::find("native:1"),
            _ => Self::find(name),
        }
    }

    /// What is wrong with code of this kind, if that can be seen from how it begins.
    pub fn problem(&self, binary: bool, begins: &[u8]) -> Option<String> {
        let Self { name, .. } = self;
        if !binary {
            let problem = format!("code of the kind {name} has to be an archive in base64");
            return (!self.takes_text).then_some(problem);
        }
        let is_known = is_archive(begins) || self.takes_programs && is_program(begins);
        let programs = if self.takes_programs { ", a program for Linux or a script" } else { "" };
        (!is_known)
            .then(|| format!("binary code of the kind {name} has to be a zip archive{programs}"))
    }

    /// Checks that an instance can serve this many calls at a time; says why not otherwise.
    pub fn check_concurrency(&self, calls: NonZeroU16) -> Result<(), String> {
        if self.serves_several || calls == NonZeroU16::MIN {
            return Ok(());
        }
        let Self { name, .. } = self;
        Err(format!(
            "limits.concurrency must be 1: code of the kind {name} serves one call at a time"
        ))
    }

    /// The command that makes its image, in a checkout.
    pub fn build(&self) -> String {
        format!("runtimes/build.sh {}", self.folder)
    }

    /// As OpenWhisk lists it.
    pub fn describe(&self) -> Value {
        json!({
            "kind": self.name,
            "image": self.image,
            "default": true,
            "deprecated": false,
            "attached": true,
            "requireMain": self.requires_main,
        })
    }

    /// The language, under which OpenWhisk lists it.
    pub fn family(&self) -> &'static str {
        self.name.split(':').next().unwrap_or_default()
    }
}

/// Whether code begins as what is only sent in base64.
pub fn is_binary(begins: &[u8]) -> bool {
    is_archive(begins) || is_program(begins)
}

/// Whether code begins as a program for Linux or a script.
pub fn is_program(begins: &[u8]) -> bool {
    begins.starts_with(b"\x7fELF") || begins.starts_with(b"#!")
}

#[cfg(test)]
mod tests {
    use super::*;
    use squeezy_node::function::Function;

    #[test]
    fn a_kind_has_several_names() {
        let name = |kind, image| Kind::find_for(kind, image).map(|kind| kind.name);
        for (kind, right) in [
            ("python:default", "python:3.11"),
            ("python:3", "python:3.11"),
            ("nodejs:default", "nodejs:20"),
            ("java:17", "java:17"),
        ] {
            assert_eq!(name(kind, None), Some(right), "{kind}");
        }
        assert_eq!(name("blackbox", Some("openwhisk/dockerskeleton")), Some("native:1"));
        for wrong in ["php:8.0", "python:2", ""] {
            assert_eq!(name(wrong, None), None, "{wrong}");
        }
        assert_eq!((name("blackbox", Some("html")), name("blackbox", None)), (None, None));
    }

    #[test]
    fn code_is_where_its_runtime_looks_for_it() {
        let runtimes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../runtimes");
        for Kind { folder, file, packed, .. } in &KINDS {
            let path = format!("{runtimes}/{folder}/function.toml");
            let function = Function::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
            let says =
                |option: &[&str]| function.command.windows(option.len()).any(|at| at == option);
            assert!(says(&["--file", *file]), "{folder}");
            assert_eq!(says(&["--packed"]), *packed, "{folder}");
        }
    }

    #[test]
    fn what_cannot_be_code_of_a_kind_is_seen() {
        let problem =
            |kind, binary, begins: &[u8]| Kind::find(kind).unwrap().problem(binary, begins);
        assert_eq!(problem("python", false, b"def main"), None);
        assert_eq!(problem("python", true, b"PK\x03\x04..."), None);
        assert_eq!(problem("native", true, b"\x7fELF"), None);
        for (kind, binary, begins) in [
            ("python", true, &b"\x7fELF"[..]),
            ("java", false, b"class"),
            ("native", true, b"what"),
        ] {
            let problem = problem(kind, binary, begins).unwrap();
            assert!(problem.contains(kind) && problem.contains("archive"), "{problem}");
        }
    }
}
