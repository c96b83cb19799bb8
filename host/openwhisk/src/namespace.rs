//! Namespaces, and the names of what is in them.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::{
    fmt::{self, Display},
    str::FromStr,
    sync::Arc,
};

/// The namespace of whoever has no other.
const GUEST: &str = "guest";

/// The maximum length of a name in bytes.
const MOST_BYTES: usize = 63;

/// The name of a namespace: a tenant with actions, activations and keys of its own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// The namespace that is always there: that of the operator, and of the functions in a configuration.
    pub fn guest() -> Self {
        Self(GUEST.into())
    }

    /// Whether it is the one that is always there.
    pub fn is_guest(&self) -> bool {
        &*self.0 == GUEST
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Namespace {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if is_name(name) {
            Ok(Self(name.into()))
        } else {
            Err(format!("a namespace's name {RULE}"))
        }
    }
}

impl Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl Serialize for Namespace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Namespace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The name of an action with its namespace. As text it is `NAME` in the namespace that is always there, and
/// `/NAMESPACE/NAME` in any other: so files, metrics and logs of a daemon with one namespace name none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName {
    /// The namespace.
    pub namespace: Namespace,
    /// The name in it.
    pub name: Arc<str>,
}

impl QualifiedName {
    /// A name in a namespace.
    pub fn new(namespace: Namespace, name: &str) -> Self {
        Self { namespace, name: name.into() }
    }

    /// The package that it is in; `None` if it is in none. A package's own name is in none.
    pub fn package(&self) -> Option<Self> {
        let (package, _) = self.name.split_once('/')?;
        Some(Self::new(self.namespace.clone(), package))
    }

    /// Its name in the package that it is in.
    pub fn entity(&self) -> &str {
        self.name.split_once('/').map_or(&self.name, |(_, entity)| entity)
    }

    /// Something in the package of this name.
    pub fn inside(&self, entity: &str) -> Self {
        Self::new(self.namespace.clone(), &format!("{}/{entity}", self.name))
    }

    /// What clients see as its namespace: with the package, if it is in one.
    pub fn path(&self) -> String {
        let namespace = &self.namespace;
        self.package()
            .map_or(namespace.to_string(), |package| format!("{namespace}/{}", package.name))
    }

    /// A name in the namespace that is always there.
    pub fn guest(name: &str) -> Self {
        Self::new(Namespace::guest(), name)
    }
}

impl Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name } = self;
        if namespace.is_guest() { f.write_str(name) } else { write!(f, "/{namespace}/{name}") }
    }
}

impl fmt::Debug for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl FromStr for QualifiedName {
    type Err = String;

    /// Does not check the name itself.
    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else { return Ok(Self::guest(text)) };
        let (namespace, name) =
            rest.split_once('/').ok_or_else(|| format!("not /NAMESPACE/NAME: {text:?}"))?;
        Ok(Self::new(namespace.parse()?, name))
    }
}

impl Serialize for QualifiedName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for QualifiedName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// What a name has to be.
pub(crate) const RULE: &str =
    "must be 1 to 63 letters, digits, '-', '_' and '.', and begin with a letter or digit";

/// Whether something may have this name.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=MOST_BYTES).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_a_name_that_is_a_part_of_a_path() {
        for right in ["guest", "a", "A-b_c.9", &"x".repeat(63)] {
            assert_eq!(right.parse::<Namespace>().unwrap().as_str(), right);
        }
        for wrong in ["", "_", "-a", ".", "a/b", "a b", "é", "a\n", &"x".repeat(64)] {
            let error = wrong.parse::<Namespace>().unwrap_err();
            assert!(error.starts_with("a namespace's name must be 1 to 63"), "{error}");
        }
    }

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for (text, namespace, name) in
            [("f", "guest", "f"), ("/acme/f", "acme", "f"), ("/acme/p/f", "acme", "p/f")]
        {
            let read: QualifiedName = text.parse().unwrap();
            assert_eq!((read.namespace.as_str(), &*read.name), (namespace, name));
            assert_eq!(read.to_string(), text);
        }
        let packaged: QualifiedName = "/acme/p/f".parse().unwrap();
        let package = packaged.package().unwrap();
        assert_eq!((packaged.path().as_str(), packaged.entity()), ("acme/p", "f"));
        assert_eq!((package.inside("f"), package.package()), (packaged, None));
        assert_eq!((package.path().as_str(), package.entity()), ("acme", "p"));
        for wrong in ["/", "/a", "/_/f", "//f"] {
            assert!(wrong.parse::<QualifiedName>().is_err(), "{wrong}");
        }
    }
}
