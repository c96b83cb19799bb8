//! Actions, as clients write and get them.

use crate::{Digest, Limits};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error},
};
use serde_json::{Map, Value, json};

/// The one namespace there is; `_` means it too.
pub const NAMESPACE: &str = "guest";

/// A list of what OpenWhisk calls parameters and annotations.
pub type Pairs = Vec<Pair>;

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Its name.
    pub key: String,
    /// Its value.
    #[serde(default)]
    pub value: Value,
}

/// What an action is made of, as a client writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActionBody {
    /// Where its code is.
    #[serde(default, deserialize_with = "object")]
    pub exec: Option<Exec>,
    /// What every call gets besides its own.
    #[serde(default)]
    pub parameters: Option<Pairs>,
    /// What clients remember about it.
    #[serde(default)]
    pub annotations: Option<Pairs>,
    /// What its calls are limited to.
    #[serde(default, deserialize_with = "object")]
    pub limits: Option<Limits>,
}

/// Reads an object if there is one: directly, a list of its fields' values would do as well.
fn object<'d, T: DeserializeOwned, D: Deserializer<'d>>(from: D) -> Result<Option<T>, D::Error> {
    let object = Option::<Map<String, Value>>::deserialize(from)?;
    let read = object.map(|object| serde_json::from_value(object.into()));
    read.transpose().map_err(D::Error::custom)
}

impl ActionBody {
    /// Its limits, as far as it says them.
    pub fn limits(&self) -> Limits {
        self.limits.unwrap_or_default()
    }

    /// A change of an action: what it does not say stays as it was.
    pub fn change(self, earlier: &Self) -> Self {
        Self {
            limits: Some(self.limits().or(earlier.limits())),
            exec: self.exec,
            parameters: self.parameters.or_else(|| earlier.parameters.clone()),
            annotations: self.annotations.or_else(|| earlier.annotations.clone()),
        }
    }
}

/// Where an action's code is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exec {
    /// `blackbox`: an image that holds everything.
    pub kind: String,
    /// The image's name.
    #[serde(default)]
    pub image: Option<String>,
    /// Which image of this name: the one that was built last, when absent.
    #[serde(default)]
    pub digest: Option<Digest>,
    /// Code for an image that takes some; none of ours does.
    #[serde(default, skip_serializing)]
    pub code: Option<Value>,
}

/// An action as clients get it.
pub fn describe(
    name: &str,
    revision: u32,
    updated_ms: u64,
    exec: Value,
    body: &ActionBody,
    limits: Value,
) -> Value {
    json!({
        "namespace": NAMESPACE,
        "name": name,
        "version": version(revision),
        "publish": false,
        "updated": updated_ms,
        "exec": exec,
        "parameters": body.parameters.as_deref().unwrap_or_default(),
        "annotations": body.annotations.as_deref().unwrap_or_default(),
        "limits": limits,
    })
}

/// Where an action's code is, as clients get it.
pub fn exec(image: &str, digest: Option<&Digest>) -> Value {
    let mut exec = json!({ "kind": "blackbox", "image": image, "binary": false });
    if let Some(digest) = digest {
        exec["digest"] = digest.to_string().into();
    }
    exec
}

/// A version, as clients see it.
pub fn version(revision: u32) -> String {
    format!("0.0.{revision}")
}

/// What is wrong with an action's name, if anything is.
pub fn check_name(name: &str) -> Result<(), String> {
    let right = (1..=63).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if right {
        Ok(())
    } else {
        Err("an action's name must be 1 to 63 letters, digits, '-', '_' and '.', and begin with a letter or digit".to_owned())
    }
}
