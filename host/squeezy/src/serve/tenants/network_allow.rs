//! What the functions of a namespace may open for themselves.

use serde::{Deserialize, Serialize};
use squeezy_node::function::MAX_RULES;
use squeezy_vmm::network::Destination;

/// Private networks that the operator allows to a namespace. Its actions reach those that they ask for; no list opens
/// anything else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Destination>", into = "Vec<Destination>")]
pub struct NetworkAllow(Vec<Destination>);

impl NetworkAllow {
    /// All of them.
    pub fn networks(&self) -> &[Destination] {
        &self.0
    }
}

impl TryFrom<Vec<Destination>> for NetworkAllow {
    type Error = String;

    fn try_from(networks: Vec<Destination>) -> Result<Self, String> {
        if networks.len() > MAX_RULES {
            return Err(format!("network_allow must be at most {MAX_RULES} networks"));
        }
        match networks.iter().find(|network| !network.is_private()) {
            Some(other) => Err(format!(
                "network_allow: {other} is not private, and what is public need not be allowed"
            )),
            None => Ok(Self(networks)),
        }
    }
}

impl From<NetworkAllow> for Vec<Destination> {
    fn from(allow: NetworkAllow) -> Self {
        allow.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn only_private_networks_are_for_the_operator_to_allow() {
        let read = |list: Value| serde_json::from_value::<NetworkAllow>(list);
        let allow = read(json!(["10.1.0.0/16", "192.168.0.7:443"])).unwrap();
        assert_eq!(json!(allow), json!(["10.1.0.0/16", "192.168.0.7:443"]));
        assert!(read(json!(vec!["10.0.0.1"; 64])).is_ok());
        for (wrong, part) in [
            (json!(["0.0.0.0/0"]), "0.0.0.0/0 is not private"),
            (json!(["10.0.0.1", "1.1.1.1"]), "1.1.1.1 is not private"),
            (json!(["127.0.0.1"]), "127.0.0.1 is not private"),
            (json!(["example.com"]), "is not a network such as"),
            (json!(vec!["10.0.0.1"; 65]), "must be at most 64 networks"),
            (json!("10.0.0.1"), "expected a sequence"),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains(part) && error.lines().count() == 1, "{error}");
        }
    }
}
