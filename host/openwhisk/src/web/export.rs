//! The annotations that make an action a web action.

use crate::action::Pair;
use serde_json::Value;

/// How an action is exported to clients without a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The action gets the query and the body as they are, instead of what they say.
    pub raw: bool,
    /// The action answers `OPTIONS` itself, and says which other sites may use it.
    pub custom_options: bool,
    /// Who may call it.
    pub access: Access,
    /// Requests may not override the action's own parameters.
    pub is_final: bool,
}

/// Who may call a web action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anybody.
    Anybody,
    /// Clients with the key.
    WithKey,
    /// Whoever sends this in `X-Require-Whisk-Auth`.
    WithSecret(String),
    /// Nobody, because the annotation is none of these.
    Nobody,
}

impl Export {
    /// How an action with these annotations is exported; `None` if it is not.
    pub fn of(annotations: &[Pair]) -> Option<Self> {
        let is = |key| value(annotations, key) == Some(&Value::Bool(true));
        if !is("web-export") {
            return None;
        }
        let access = match value(annotations, "require-whisk-auth") {
            None | Some(Value::Null | Value::Bool(false)) => Access::Anybody,
            Some(Value::Bool(true)) => Access::WithKey,
            Some(Value::String(secret)) if !secret.is_empty() => Access::WithSecret(secret.clone()),
            Some(Value::Number(secret)) => Access::WithSecret(secret.to_string()),
            Some(_) => Access::Nobody,
        };
        Some(Self {
            raw: is("raw-http"),
            custom_options: is("web-custom-options"),
            access,
            is_final: value(annotations, "final") != Some(&Value::Bool(false)),
        })
    }
}

/// The value of an annotation. Of several with one name the last counts.
fn value<'a>(annotations: &'a [Pair], key: &str) -> Option<&'a Value> {
    annotations.iter().rev().find(|pair| pair.key == key).map(|pair| &pair.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn export(annotations: Value) -> Option<Export> {
        let Value::Object(annotations) = annotations else { panic!("{annotations}") };
        let pairs = annotations.into_iter().map(|(key, value)| Pair { key, value });
        Export::of(&pairs.collect::<Vec<_>>())
    }

    #[test]
    fn only_what_is_exported_is_a_web_action() {
        for not in [json!({}), json!({ "web-export": false }), json!({ "web-export": "false" })] {
            assert_eq!(export(not), None);
        }
        let plain = export(json!({ "web-export": true })).unwrap();
        let right =
            Export { raw: false, custom_options: false, access: Access::Anybody, is_final: true };
        assert_eq!(plain, right);
        let all = json!({
            "web-export": true, "raw-http": true, "web-custom-options": true, "final": false,
        });
        let right = Export { raw: true, custom_options: true, is_final: false, ..right };
        assert_eq!(export(all).unwrap(), right);
        let twice = [(true, "a"), (false, "b")]
            .map(|(value, _)| Pair { key: "web-export".to_owned(), value: value.into() });
        assert_eq!(Export::of(&twice), None);
    }

    #[test]
    fn what_is_not_understood_lets_nobody_in() {
        for (value, right) in [
            (json!(null), Access::Anybody),
            (json!(false), Access::Anybody),
            (json!(true), Access::WithKey),
            (json!("s"), Access::WithSecret("s".to_owned())),
            (json!(12), Access::WithSecret("12".to_owned())),
            (json!(""), Access::Nobody),
            (json!(["s"]), Access::Nobody),
            (json!({}), Access::Nobody),
        ] {
            let annotations = json!({ "web-export": true, "require-whisk-auth": value });
            assert_eq!(export(annotations).unwrap().access, right);
        }
    }
}
