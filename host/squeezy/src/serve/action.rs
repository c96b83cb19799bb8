//! Actions: functions under the names clients know, and what they are called with.

use super::{
    images::{Digest, Pinned},
    limits::Limits,
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error},
};
use serde_json::{Map, Value, json};
use squeezy_node::FunctionImage;
use squeezy_runtime::FunctionIndex;
use std::sync::Arc;

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

/// An action that can be called.
#[derive(Clone, Debug)]
pub struct Action {
    /// Its name.
    pub name: String,
    /// As a client wrote it.
    pub body: ActionBody,
    /// How often it was changed.
    pub revision: u32,
    /// When it was changed last, in milliseconds since 1970.
    pub updated_ms: u64,
    /// What it runs.
    pub image: FunctionImage,
    /// Keeps its image as it is; nothing does so for a function of the configuration.
    pub pinned: Option<Arc<Pinned>>,
    /// What the node knows it by.
    pub index: FunctionIndex,
}

impl Action {
    /// Its version, as clients see it.
    pub fn version(&self) -> String {
        version(self.revision)
    }

    /// What a call with these arguments gives the function: they go before the action's own.
    pub fn arguments(&self, given: Map<String, Value>) -> Value {
        let own = self.body.parameters.iter().flatten();
        let mut arguments: Map<_, _> =
            own.map(|pair| (pair.key.clone(), pair.value.clone())).collect();
        arguments.extend(given);
        Value::Object(arguments)
    }

    /// The action as clients get it.
    pub fn describe(&self) -> Value {
        let function = &self.image.function;
        let limits = self.body.limits().describe(Some(function));
        let digest = self.pinned.as_ref().map(|pinned| &pinned.digest);
        let exec = exec(&function.name, digest);
        describe(&self.name, self.revision, self.updated_ms, exec, &self.body, limits)
    }
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

fn version(revision: u32) -> String {
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
