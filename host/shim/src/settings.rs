//! The settings of new VMs: `/etc/squeezy/shim.toml`, which nobody has to write.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::{fs::File, io, io::Read, ops::RangeInclusive, path::Path};
use toml::Spanned;

/// Where they are.
pub const SETTINGS: &str = "/etc/squeezy/shim.toml";
/// The environment variable that names another place.
pub const SETTINGS_VARIABLE: &str = "SQUEEZY_SHIM_SETTINGS";
/// Every key with its default.
pub const EXAMPLE: &str = include_str!("shim.toml");
/// How long the file may be, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// What a VM is like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Its processors.
    pub processors: u32,
    /// Memory for what its pods share, in bytes.
    pub shared_bytes: u64,
    /// Most pods.
    pub pods: u16,
    /// Most VMs of a namespace.
    pub vms_per_namespace: usize,
    /// Disk space for images of layers, in bytes.
    pub layers_bytes: u64,
    /// How long it waits for the next pod, in seconds.
    pub idle_seconds: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            processors: 2,
            shared_bytes: 256 << 20,
            pods: 32,
            vms_per_namespace: 16,
            layers_bytes: 16 << 30,
            idle_seconds: 0,
        }
    }
}

/// The file as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    processors: Option<Spanned<i64>>,
    shared_memory_mib: Option<Spanned<i64>>,
    pods: Option<Spanned<i64>>,
    vms_per_namespace: Option<Spanned<i64>>,
    layers_gib: Option<Spanned<i64>>,
    idle_seconds: Option<Spanned<i64>>,
}

impl Settings {
    /// Reads a file; the defaults if it is not there.
    ///
    /// # Errors
    /// It cannot be read, or something in it is wrong: the error names the line.
    pub fn read(path: &Path) -> Result<Self> {
        let mut text = String::new();
        match File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text)) {
            Ok(_) if text.len() as u64 > MAX_BYTES => {
                Err(format!("it is longer than {} KiB", MAX_BYTES >> 10))
            }
            Ok(_) => Self::parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error.to_string()),
        }
        .map_err(|problem| Error::invalid(format_args!("{}: {problem}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let written: Written = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            format!("line {}: {}", line(at), error.message().replace('\n', " "))
        })?;
        let number = |key: &str, value: &Option<Spanned<i64>>, range: RangeInclusive<u64>| {
            let Some(value) = value else { return Ok(None) };
            let found = u64::try_from(*value.as_ref()).ok().filter(|found| range.contains(found));
            let wrong = || {
                let (least, most) = (range.start(), range.end());
                format!("line {}: {key} is from {least} to {most}", line(value.span().start))
            };
            found.map(Some).ok_or_else(wrong)
        };
        let mut settings = Self::default();
        if let Some(count) = number("processors", &written.processors, 1..=64)? {
            settings.processors = count as u32;
        }
        if let Some(mib) = number("shared_memory_mib", &written.shared_memory_mib, 128..=65536)? {
            settings.shared_bytes = mib << 20;
        }
        if let Some(count) = number("pods", &written.pods, 1..=32)? {
            settings.pods = count as u16;
        }
        if let Some(count) = number("vms_per_namespace", &written.vms_per_namespace, 1..=1024)? {
            settings.vms_per_namespace = count as usize;
        }
        if let Some(gib) = number("layers_gib", &written.layers_gib, 1..=1024)? {
            settings.layers_bytes = gib << 30;
        }
        if let Some(seconds) = number("idle_seconds", &written.idle_seconds, 0..=86400)? {
            settings.idle_seconds = seconds;
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_says_the_defaults() {
        let keys = EXAMPLE.lines().filter(|line| line.contains(" = ")).count();
        assert_eq!((Settings::parse(EXAMPLE), keys), (Ok(Settings::default()), 6));
        assert_eq!(Settings::read(Path::new("/nowhere/shim.toml")), Ok(Settings::default()));
    }

    #[test]
    fn what_is_said_counts() {
        let text = "processors = 4\nshared_memory_mib = 512\npods = 8\nvms_per_namespace = 3\nlayers_gib = 2\nidle_seconds = 60\n";
        let settings = Settings {
            processors: 4,
            shared_bytes: 512 << 20,
            pods: 8,
            vms_per_namespace: 3,
            layers_bytes: 2 << 30,
            idle_seconds: 60,
        };
        assert_eq!(Settings::parse(text), Ok(settings));
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_line() {
        for (text, words) in [
            ("pods = 3\nvcpus = 2\n", "line 2: unknown field `vcpus`"),
            ("\n\npods = 33", "line 3: pods is from 1 to 32"),
            ("processors = -1", "line 1: processors is from 1 to 64"),
            ("pods = \"many\"", "line 1: "),
            ("pods = 1\npods = 2", "line 2: "),
            ("shared_memory_mib = 100", "line 1: shared_memory_mib is from 128 to 65536"),
            ("[vm]", "line 1: "),
        ] {
            let error = Settings::parse(text).unwrap_err();
            assert!(error.contains(words) && !error.contains('\n'), "{text}: {error}");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shim.toml");
        std::fs::write(&path, "#".repeat(MAX_BYTES as usize + 1)).unwrap();
        assert!(Settings::read(&path).unwrap_err().message.contains("longer than 64 KiB"));
    }
}
