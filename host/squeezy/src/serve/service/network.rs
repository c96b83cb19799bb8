//! The network that a client chooses for its action.

use super::ServiceError;
use crate::serve::tenants::NetworkAllow;
use serde_json::Value;
use squeezy_node::function::{Function, MAX_RULES};
use squeezy_openwhisk::action::{ActionBody, NETWORK, NETWORK_ALLOW, NETWORK_DENY};
use squeezy_protocol::NetworkAccess;
use squeezy_vmm::network::{Destination, InvalidDestination, Rules};

/// The network that an action's annotation asks for, if it has one.
pub(super) fn chosen(body: &ActionBody) -> Result<Option<NetworkAccess>, ServiceError> {
    let Some(value) = annotation(body, NETWORK) else { return Ok(None) };
    let parsed = value.as_str().unwrap_or_default().parse();
    let wrong = |problem| ServiceError::Invalid(format!("the annotation {NETWORK} {problem}"));
    parsed.map(Some).map_err(wrong)
}

/// What an action's annotations choose of what it may reach. Of what is private, what is not allowed, or not any more, is
/// left out wherever it is judged.
pub(super) fn own_rules(body: &ActionBody) -> Result<Rules, ServiceError> {
    Ok(Rules { allow: list(body, NETWORK_ALLOW)?, deny: list(body, NETWORK_DENY)? })
}

/// Fails if an action's annotations allow more than its image or the operator does.
pub(super) fn check(
    body: &ActionBody,
    function: &Function,
    allow: &NetworkAllow,
) -> Result<(), ServiceError> {
    let (own, rules) = (own_rules(body)?, &function.reach.rules);
    let may_allow = |destination: &&Destination| rules.may_allow(destination, allow.networks());
    match own.allow.iter().find(|destination| !may_allow(destination)) {
        Some(more) => Err(ServiceError::Invalid(format!(
            "the annotation {NETWORK_ALLOW} has {more}, which is private: leave it out, or have the operator allow it to the namespace, with `squeezy namespace set NAMESPACE --network-allow`"
        ))),
        None => Ok(()),
    }
}

/// The networks that an annotation lists.
fn list(body: &ActionBody, key: &str) -> Result<Vec<Destination>, ServiceError> {
    let Some(value) = annotation(body, key) else { return Ok(Vec::new()) };
    let Some(texts) = value.as_array().filter(|texts| texts.len() <= MAX_RULES) else {
        let problem =
            format!("the annotation {key} must be a list of at most {MAX_RULES} networks");
        return Err(ServiceError::Invalid(problem));
    };
    let parsed = texts.iter().map(|text| text.as_str().unwrap_or_default().parse::<Destination>());
    let wrong = |error| ServiceError::Invalid(format!("the annotation {key}: {error}"));
    parsed.collect::<Result<Vec<_>, InvalidDestination>>().map_err(wrong)
}

/// The value of an annotation, the last one if there are several.
fn annotation<'a>(body: &'a ActionBody, key: &str) -> Option<&'a Value> {
    let annotations = body.annotations.iter().flatten();
    annotations.rev().find(|pair| pair.key == key).map(|pair| &pair.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn body(annotations: Value) -> ActionBody {
        serde_json::from_value(json!({ "annotations": annotations })).unwrap()
    }

    fn with(key: &str, value: Value) -> ActionBody {
        body(json!([{ "key": "a" }, { "key": key, "value": value }]))
    }

    #[test]
    fn an_annotation_chooses_the_network() {
        assert_eq!(chosen(&ActionBody::default()).unwrap(), None);
        let outbound = with("network", json!("outbound"));
        assert_eq!(chosen(&outbound).unwrap(), Some(NetworkAccess::Outbound));
        for value in [json!("all"), json!(1), json!(null)] {
            let error = chosen(&with("network", value)).unwrap_err().to_string();
            assert_eq!(error, "the annotation network must be none or outbound");
        }
    }

    #[test]
    fn annotations_choose_among_what_the_image_and_the_operator_allow() {
        let html = include_str!("../../../../../functions/html/function.toml");
        let lists = "network_allow = [\"10.1.0.0/16\", \"0.0.0.0/0\"]\n";
        let function = Function::parse(&format!("{lists}{html}")).unwrap();
        let operator: NetworkAllow = serde_json::from_value(json!(["192.168.0.0/24"])).unwrap();
        let nothing = NetworkAllow::default();
        let allow = |list: Value| with("network-allow", list);

        // Whoever denies asks nobody, nor does who allows what is public within that.
        let only = json!([
            { "key": "network-deny", "value": ["0.0.0.0/0"] },
            { "key": "network-allow", "value": ["1.1.1.1:443", "10.1.2.3"] },
        ]);
        check(&body(only.clone()), &function, &nothing).unwrap();
        let rules = own_rules(&body(only)).unwrap();
        assert_eq!((rules.allow.len(), rules.deny.len()), (2, 1));

        let own = allow(json!(["192.168.0.7", "1.1.1.1"]));
        check(&own, &function, &operator).unwrap();
        let error = check(&own, &function, &nothing).unwrap_err().to_string();
        assert!(error.contains("network-allow has 192.168.0.7, which is private"), "{error}");
        // The operator may have taken it back, which is no reason not to restore the action.
        assert_eq!(own_rules(&own).unwrap().allow.len(), 2);
        // It has to be allowed as a whole, and the image's list of everything opens nothing private.
        for more in ["192.168.0.0/16", "10.0.0.0/8", "172.16.0.1"] {
            assert!(check(&allow(json!([more])), &function, &operator).is_err(), "{more}");
        }
    }

    #[test]
    fn a_list_is_bounded_and_has_nothing_but_networks() {
        for key in ["network-allow", "network-deny"] {
            let list = |value: Value| list(&with(key, value), key);
            assert!(list(json!([])).unwrap().is_empty());
            assert_eq!(list(json!(vec!["10.0.0.1"; 64])).unwrap().len(), 64);
            let right = format!("the annotation {key} must be a list of at most 64 networks");
            for value in [json!(vec!["10.0.0.1"; 65]), json!("10.0.0.1"), json!(null), json!({})] {
                assert_eq!(list(value).unwrap_err().to_string(), right);
            }
            let long = "1".repeat(1 << 20);
            for value in [json!(["example.com"]), json!([1]), json!(["::1"]), json!([long])] {
                let error = list(value).unwrap_err().to_string();
                let right = format!("the annotation {key}: \"");
                assert!(error.starts_with(&right) && error.len() < 200, "{error}");
            }
        }
    }
}
