//! Actions, as clients send and receive them.

use crate::{
    Digest, Limits, QualifiedName, kind,
    namespace::{RULE, is_name},
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error},
};
use serde_json::{Map, Value, json};

/// The annotation that chooses an action's network: `none` or `outbound`.
pub const NETWORK: &str = "network";

/// The annotation that lists networks which an action reaches though they are private, or within those that it denies.
pub const NETWORK_ALLOW: &str = "network-allow";

/// The annotation that lists networks which an action does not reach.
pub const NETWORK_DENY: &str = "network-deny";

/// The annotation that says how many instances of an action are kept up without calls.
pub const MINIMUM_INSTANCES: &str = "minimum-instances";

/// OpenWhisk's parameters or annotations.
pub type Pairs = Vec<Pair>;

/// One parameter or annotation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Its name.
    pub key: String,
    /// Its value.
    #[serde(default)]
    pub value: Value,
}

/// An action, as a client sends it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActionBody {
    /// Where its code is.
    #[serde(default, deserialize_with = "object")]
    pub exec: Option<Exec>,
    /// Default parameters, which every call gets besides its own.
    #[serde(default)]
    pub parameters: Option<Pairs>,
    /// Clients' own notes about it.
    #[serde(default)]
    pub annotations: Option<Pairs>,
    /// Limits of its calls.
    #[serde(default, deserialize_with = "object")]
    pub limits: Option<Limits>,
}

/// Reads an object if there is one. Deserializing directly into `T` would also accept a list of its fields'
/// values.
fn object<'d, T: DeserializeOwned, D: Deserializer<'d>>(from: D) -> Result<Option<T>, D::Error> {
    let object = Option::<Map<String, Value>>::deserialize(from)?;
    let read = object.map(|object| serde_json::from_value(object.into()));
    read.transpose().map_err(D::Error::custom)
}

impl ActionBody {
    /// The limits it sets.
    pub fn limits(&self) -> Limits {
        self.limits.unwrap_or_default()
    }

    /// Updates an `earlier` action with this one: what this one leaves out stays as it was.
    pub fn change(self, earlier: &Self) -> Self {
        Self {
            limits: Some(self.limits().or(earlier.limits())),
            exec: self.exec,
            parameters: self.parameters.or_else(|| earlier.parameters.clone()),
            annotations: self.annotations.or_else(|| earlier.annotations.clone()),
        }
    }
}

/// Where an action's code is. The code itself is read apart from this, because it may be large.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exec {
    /// `blackbox`: an image with everything in it; `sequence`: other actions; otherwise what runs the code.
    pub kind: String,
    /// The image's name.
    #[serde(default)]
    pub image: Option<String>,
    /// Which image of this name; the latest if absent.
    #[serde(default)]
    pub digest: Option<Digest>,
    /// Whether the code is in base64; if absent, the code itself says.
    #[serde(default)]
    pub binary: Option<bool>,
    /// The name of the code's entry point.
    #[serde(default)]
    pub main: Option<String>,
    /// What a sequence calls, as `/NAMESPACE/NAME`.
    #[serde(default)]
    pub components: Option<Vec<String>>,
}

/// An action, as clients receive it.
pub fn describe(
    name: &QualifiedName,
    revision: u32,
    updated_ms: u64,
    exec: Value,
    body: &ActionBody,
    limits: Value,
) -> Value {
    json!({
        "namespace": name.path(),
        "name": name.entity(),
        "version": version(revision),
        "publish": false,
        "updated": updated_ms,
        "exec": exec,
        "parameters": body.parameters.as_deref().unwrap_or_default(),
        "annotations": body.annotations.as_deref().unwrap_or_default(),
        "limits": limits,
    })
}

/// Which image an action is, as clients receive it.
pub fn exec(image: &str, digest: Option<&Digest>) -> Value {
    let mut exec = json!({ "kind": kind::IMAGE, "image": image, "binary": false });
    if let Some(digest) = digest {
        exec["digest"] = digest.to_string().into();
    }
    exec
}

/// What code an action has, as clients receive it: all but the code.
pub fn exec_of_code(kind: &str, binary: bool, main: Option<&str>) -> Value {
    let mut exec = json!({ "kind": kind, "binary": binary });
    if let Some(main) = main {
        exec["main"] = main.into();
    }
    exec
}

/// A version, as clients see it.
pub fn version(revision: u32) -> String {
    format!("0.0.{revision}")
}

/// Checks an action's name, which may have a package's before it; says what is wrong otherwise.
pub fn check_name(name: &str) -> Result<(), String> {
    let (package, own) = name.split_once('/').unwrap_or((name, name));
    if is_name(package) && is_name(own) { Ok(()) } else { Err(format!("an action's name {RULE}")) }
}
