//! Packages, as clients send and receive them, and as they are stored.

use crate::{
    Namespace, QualifiedName,
    action::{Pair, Pairs, version},
    namespace::{RULE, is_name},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The package of actions that are in none, in addresses of web actions.
pub const NO_PACKAGE: &str = "default";

/// The annotation that says again what a package is bound to, for clients that know only lists.
const BINDING: &str = "binding";

/// A package: parameters that its actions share; or another name for a package, with parameters of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Package {
    /// The package that this is another name for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<QualifiedName>,
    /// What each call of its actions gets, unless the action or the call says otherwise.
    pub parameters: Pairs,
    /// Clients' own notes about it.
    pub annotations: Pairs,
    /// Number of changes.
    pub revision: u32,
    /// Time of the last change, in milliseconds since 1970.
    pub updated_ms: u64,
}

/// A package, as a client sends it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct PackageBody {
    #[serde(default)]
    parameters: Option<Pairs>,
    #[serde(default)]
    annotations: Option<Pairs>,
    #[serde(default)]
    binding: Option<Map<String, Value>>,
}

impl PackageBody {
    /// What a package in `namespace` is to be bound to. An empty object, which clients get for a package, is
    /// nothing.
    pub fn binding(&self, namespace: &Namespace) -> Result<Option<QualifiedName>, String> {
        let Some(binding) = self.binding.as_ref().filter(|binding| !binding.is_empty()) else {
            return Ok(None);
        };
        let text = |key| binding.get(key).and_then(Value::as_str);
        match text("namespace") {
            None | Some("_") => {}
            Some(other) if other == namespace.as_str() => {}
            Some(_) => {
                return Err("a package can only be bound to one of its own namespace".to_owned());
            }
        }
        let name = text("name").ok_or("binding.name is missing: it has to name a package")?;
        check_name(name)?;
        Ok(Some(QualifiedName::new(namespace.clone(), name)))
    }
}

impl Package {
    /// The package that a client wants instead of the `earlier` one: what is left out stays as it was.
    pub fn change(
        body: PackageBody,
        binding: Option<QualifiedName>,
        earlier: Option<&Self>,
        updated_ms: u64,
    ) -> Self {
        let kept = earlier.cloned().unwrap_or_default();
        let mut annotations = body.annotations.unwrap_or(kept.annotations);
        annotations.retain(|pair| pair.key != BINDING);
        Self {
            binding: binding.or(kept.binding),
            parameters: body.parameters.unwrap_or(kept.parameters),
            annotations,
            revision: kept.revision.saturating_add(1),
            updated_ms,
        }
    }

    /// The package in OpenWhisk's format, as it is in a list: without parameters and actions.
    pub fn describe(&self, name: &QualifiedName) -> Value {
        let mut annotations = self.annotations.clone();
        let binding = self.binding.as_ref().map_or_else(
            || json!({}),
            |provider| {
                let binding = json!({ "namespace": provider.namespace, "name": &*provider.name });
                annotations.push(Pair { key: BINDING.to_owned(), value: binding.clone() });
                binding
            },
        );
        json!({
            "namespace": name.namespace,
            "name": &*name.name,
            "version": version(self.revision),
            "publish": false,
            "updated": self.updated_ms,
            "annotations": annotations,
            "binding": binding,
        })
    }
}

/// Checks a package's name; says what is wrong otherwise.
pub fn check_name(name: &str) -> Result<(), String> {
    match name {
        NO_PACKAGE => Err(format!("Package name '{NO_PACKAGE}' is reserved")),
        name if is_name(name) => Ok(()),
        _ => Err(format!("a package's name {RULE}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(value: Value) -> PackageBody {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_change_keeps_what_it_does_not_say() {
        let pairs = |value: u32| json!([{ "key": "a", "value": value }]);
        let all = body(json!({ "parameters": pairs(1), "annotations": pairs(2), "publish": true }));
        let first = Package::change(all, None, None, 5);
        assert_eq!((first.revision, &first.parameters[0].value), (1, &json!(1)));
        let changed = Package::change(body(json!({ "parameters": [] })), None, Some(&first), 6);
        assert!(changed.parameters.is_empty() && changed.annotations == first.annotations);
        assert_eq!((changed.revision, changed.updated_ms), (2, 6));
        let described = changed.describe(&QualifiedName::guest("p"));
        assert_eq!((&described["binding"], &described["version"]), (&json!({}), &json!("0.0.2")));
    }

    #[test]
    fn a_binding_is_said_once_more_in_the_annotations() {
        let provider = Some(QualifiedName::guest("p"));
        let given = body(json!({ "annotations": [{ "key": "binding", "value": "mine" }] }));
        let package = Package::change(given, provider, None, 5);
        let right = json!({ "namespace": "guest", "name": "p" });
        let described = package.describe(&QualifiedName::guest("b"));
        assert_eq!(described["binding"], right);
        assert_eq!(described["annotations"], json!([{ "key": "binding", "value": right }]));
    }

    #[test]
    fn a_binding_is_to_a_package_of_the_same_namespace() {
        let acme = "acme".parse::<Namespace>().unwrap();
        let binding = |value: Value| body(json!({ "binding": value })).binding(&acme);
        for none in [json!(null), json!({})] {
            assert_eq!(binding(none), Ok(None));
        }
        for right in [
            json!({ "name": "p" }),
            json!({ "namespace": "_", "name": "p" }),
            json!({ "namespace": "acme", "name": "p" }),
        ] {
            assert_eq!(binding(right).unwrap().unwrap().to_string(), "/acme/p");
        }
        for wrong in [
            json!({ "namespace": "guest", "name": "p" }),
            json!({ "namespace": "acme" }),
            json!({ "name": 3 }),
            json!({ "name": "a/b" }),
            json!({ "name": "default" }),
        ] {
            assert!(binding(wrong.clone()).is_err(), "{wrong}");
        }
        assert!(serde_json::from_value::<PackageBody>(json!({ "binding": [] })).is_err());
    }
}
