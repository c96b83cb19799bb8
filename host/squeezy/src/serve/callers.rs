//! Who sends a request, and what they may do.

use axum::http::Method;
use serde::{Deserialize, Serialize};
use squeezy_openwhisk::Namespace;
use std::sync::Arc;

/// Who has sent a request, which authentication has found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The caller's own namespace, `_` in paths.
    pub namespace: Namespace,
    /// What the caller may do in it.
    pub role: Role,
    /// The public part of the caller's key, which no other key ever has; `None` for the operator's.
    pub key: Option<Arc<str>>,
}

/// What the owner of a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything, in every namespace; only the key in the state directory.
    #[serde(skip)]
    Operator,
    /// Change, call and read what is in the namespace.
    Change,
    /// Read what is in the namespace.
    Read,
    /// Call, and ask for the outcome by its ID.
    Call,
    /// Read the numbers of all namespaces, and nothing else.
    Monitor,
}

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Reading.
    Read,
    /// Calling.
    Call,
    /// The outcome of a call whose ID is known.
    Outcome,
    /// Changing.
    Change,
    /// Managing the daemon.
    Operate,
}

impl Need {
    /// What a request of this method needs for a path in a namespace.
    pub fn of(method: &Method, path: &str) -> Self {
        let is_outcome = path.contains("/activations/{");
        match *method {
            Method::GET | Method::HEAD if is_outcome => Self::Outcome,
            Method::GET | Method::HEAD => Self::Read,
            // That turns a rule on or off, or pulls an image.
            Method::POST if path.contains("/rules/") || path.ends_with("/images") => Self::Change,
            Method::POST => Self::Call,
            _ => Self::Change,
        }
    }
}

impl Role {
    /// The roles that a key can have.
    pub const OF_KEYS: [Self; 4] = [Self::Change, Self::Read, Self::Call, Self::Monitor];

    /// Whether it is enough.
    pub fn may(self, need: Need) -> bool {
        match self {
            Self::Operator => true,
            Self::Change => need != Need::Operate,
            Self::Read => matches!(need, Need::Read | Need::Outcome),
            Self::Call => matches!(need, Need::Call | Need::Outcome),
            Self::Monitor => false,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Change => "change",
            Self::Read => "read",
            Self::Call => "call",
            Self::Monitor => "monitor",
        }
    }
}

impl std::str::FromStr for Role {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::OF_KEYS.into_iter().find(|role| role.name() == name);
        found.ok_or_else(|| "must be change, read, call or monitor".to_owned())
    }
}

impl Caller {
    /// Whether the caller may do this in this namespace.
    pub fn may(&self, need: Need, namespace: &Namespace) -> bool {
        self.role.may(need) && (self.role == Role::Operator || self.namespace == *namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_may_what_it_says() {
        use Need::{Call, Change, Operate, Outcome, Read};
        for (role, may) in [
            (Role::Operator, &[Read, Call, Outcome, Change, Operate][..]),
            (Role::Change, &[Read, Call, Outcome, Change]),
            (Role::Read, &[Read, Outcome]),
            (Role::Call, &[Call, Outcome]),
            (Role::Monitor, &[]),
        ] {
            for need in [Read, Call, Outcome, Change, Operate] {
                assert_eq!(role.may(need), may.contains(&need), "{role:?} {need:?}");
            }
        }
        assert!("operator".parse::<Role>().is_err() && "read".parse() == Ok(Role::Read));
    }

    #[test]
    fn only_the_operator_is_at_home_everywhere() {
        let (guest, acme) = (Namespace::guest(), "acme".parse::<Namespace>().unwrap());
        let caller = |role| Caller { namespace: acme.clone(), role, key: None };
        for role in Role::OF_KEYS {
            assert!(!caller(role).may(Need::Read, &guest));
        }
        assert!(caller(Role::Operator).may(Need::Change, &guest));
        assert!(caller(Role::Change).may(Need::Change, &acme));
    }

    #[test]
    fn a_request_needs_what_its_method_does() {
        let path = "/api/v1/namespaces/{namespace}/actions/{name}";
        assert_eq!(Need::of(&Method::GET, path), Need::Read);
        assert_eq!(Need::of(&Method::POST, path), Need::Call);
        assert_eq!(Need::of(&Method::PUT, path), Need::Change);
        assert_eq!(Need::of(&Method::DELETE, path), Need::Change);
        let path = "/api/v1/namespaces/{namespace}/actions/{package}/{name}";
        assert_eq!(Need::of(&Method::POST, path), Need::Call);
        let path = "/api/v1/namespaces/{namespace}/activations";
        assert_eq!(Need::of(&Method::GET, path), Need::Read);
        let path = "/api/v1/namespaces/{namespace}/activations/{id}/logs";
        assert_eq!(Need::of(&Method::GET, path), Need::Outcome);
        let path = "/api/v1/namespaces/{namespace}/rules/{name}";
        assert_eq!(Need::of(&Method::POST, path), Need::Change);
        let path = "/api/v1/namespaces/{namespace}/images";
        assert_eq!(Need::of(&Method::POST, path), Need::Change);
    }
}
