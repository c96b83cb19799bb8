//! References to images in registries.

use squeezy_openwhisk::Digest;
use std::fmt;

/// The registry of references that name none, and the folder of its own images.
const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_FOLDER: &str = "library";

/// The maximum length of a reference.
const MOST_CHARACTERS: usize = 512;

/// An image in a registry: `[REGISTRY/]NAME[:TAG][@DIGEST]`, with Docker's defaults.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The registry's host, with a port if it has one.
    pub registry: String,
    /// The name in the registry.
    pub name: String,
    /// Without a digest it says which image; otherwise it is for people.
    pub tag: Option<String>,
    /// The digest of the image's manifest, or of the list of its manifests.
    pub digest: Option<Digest>,
}

impl Reference {
    /// Whether a name is that of an image in a registry, and not of one that has been built here.
    pub fn is_one(text: &str) -> bool {
        text.contains(['/', ':', '@'])
    }

    /// Parses a reference; says what is wrong with it otherwise.
    pub fn parse(text: &str) -> Result<Self, String> {
        let shown: String = text.chars().take(100).collect();
        let wrong = |what: &str| {
            Err(format!(
                "{shown:?} is not a reference REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST of an image: {what}"
            ))
        };
        if text.len() > MOST_CHARACTERS {
            return wrong(&format!("it is longer than {MOST_CHARACTERS} characters"));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => match digest.parse() {
                Ok(digest) => (rest, Some(digest)),
                Err(_) => return wrong("its digest must be sha256: and 64 hexadecimal digits"),
            },
            None => (text, None),
        };
        let (registry, rest) = match rest.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
                (first, rest)
            }
            _ => (DEFAULT_REGISTRY, rest),
        };
        if !is_host(registry) {
            return wrong(
                "its registry must be a host name or an address, and a port if necessary",
            );
        }
        let (name, tag) = match rest.split_once(':') {
            Some((name, tag)) => (name, Some(tag)),
            None => (rest, None),
        };
        if !name.split('/').all(is_component) {
            return wrong("its name must be of a-z, 0-9, and between these '.', '_', '-' and '/'");
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return wrong("its tag must be 1 to 128 letters, digits, '_', '.' and '-'");
        }
        let name = match registry {
            DEFAULT_REGISTRY if !name.contains('/') => format!("{DEFAULT_FOLDER}/{name}"),
            _ => name.to_owned(),
        };
        let tag = tag.map(str::to_owned);
        let tag = if digest.is_none() { tag.or(Some("latest".to_owned())) } else { tag };
        Ok(Self { registry: registry.to_owned(), name, tag, digest })
    }

    /// The same image by this digest alone, as `skopeo` takes it.
    pub fn at(&self, digest: &Digest) -> String {
        format!("{}/{}@{digest}", self.registry, self.name)
    }

    /// Its registry and its name there.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.registry, self.name)
    }

    /// The name of a function that is made from it: the last part of its name, as far as the characters are
    /// allowed.
    pub fn function_name(&self) -> String {
        let last = self.name.rsplit('/').next().unwrap_or_default();
        last.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(63).collect()
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.name)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        self.digest.iter().try_for_each(|digest| write!(f, "@{digest}"))
    }
}

/// The host in `HOST[:PORT]`, which may be an IPv6 address in brackets, and the port.
pub fn split_port(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    }
}

/// Whether this is a host name, an IPv4 address, or an IPv6 address in brackets, and a port.
pub fn is_host(text: &str) -> bool {
    let (host, port) = split_port(text);
    let is_name = |host: &str| {
        let is_label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                && !label.starts_with('-')
        };
        host.split('.').all(is_label)
    };
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_right = match in_brackets {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_name(host),
    };
    is_right && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Whether this is a part of a name: letters and digits, with separators only between them.
fn is_component(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.iter().all(|end| end.is_some_and(is_plain))
        && text.bytes().all(|b| is_plain(b) || b"._-".contains(&b))
}

fn is_tag(text: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=128).contains(&text.len())
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|b| is_word(b) || b".-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_docker_reads_them() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (text, whole) in [
            ("registry.example/team/thing:1.2", "registry.example/team/thing:1.2"),
            ("registry.example/thing", "registry.example/thing:latest"),
            ("localhost/thing", "localhost/thing:latest"),
            ("127.0.0.1:5000/a/b/c_d", "127.0.0.1:5000/a/b/c_d:latest"),
            ("[::1]:5000/thing:X", "[::1]:5000/thing:X"),
            ("openwhisk/python3action", "docker.io/openwhisk/python3action:latest"),
            ("alpine:3", "docker.io/library/alpine:3"),
            (&format!("r.example/t@{digest}"), &format!("r.example/t@{digest}")),
            (&format!("r.example/t:1@{digest}"), &format!("r.example/t:1@{digest}")),
        ] {
            let reference = Reference::parse(text).unwrap();
            assert_eq!(reference.to_string(), whole);
            assert_eq!(Reference::parse(whole).unwrap(), reference);
            assert!(Reference::is_one(text));
        }
        assert!(!Reference::is_one("html"));
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        let long = format!("r.example/{}", "a".repeat(MOST_CHARACTERS));
        for wrong in [
            "",
            "/",
            ":",
            "@",
            "a/",
            "/a",
            "a//b",
            "a:",
            "r.example/",
            "r.example:port/a",
            "r.example:0/a",
            "-r.example/a",
            "r..example/a",
            "[::1/a",
            "[x]:1/a",
            "A/b",
            "a/../b",
            "a/.b",
            "a/b-",
            "a b/c",
            "a/b:c d",
            "a/b:-c",
            "a/b@sha256:1",
            "a/b@md5:1",
            "a/b@",
            "--help/x",
            "a/b\n",
            "ä/b",
            "a/b:c:d",
            "user:secret@r.example/a",
            &long,
        ] {
            let error = Reference::parse(wrong).unwrap_err();
            assert!(error.lines().count() == 1 && error.len() < 400, "{error}");
        }
    }

    #[test]
    fn a_function_is_named_after_its_image() {
        let name = |text: &str| Reference::parse(text).unwrap().function_name();
        assert_eq!(name("r.example/team/my_thing.x:1"), "my-thing-x");
        assert_eq!(name(&format!("r.example/{}", "a".repeat(80))), "a".repeat(63));
    }
}
