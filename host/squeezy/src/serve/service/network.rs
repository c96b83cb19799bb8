//! The network that a client chooses for its action.

use super::ServiceError;
use squeezy_openwhisk::action::{ActionBody, NETWORK};
use squeezy_protocol::NetworkAccess;

/// The network that an action's annotation asks for, if it has one.
pub(super) fn chosen(body: &ActionBody) -> Result<Option<NetworkAccess>, ServiceError> {
    let annotations = body.annotations.iter().flatten();
    let Some(pair) = annotations.rev().find(|pair| pair.key == NETWORK) else { return Ok(None) };
    let parsed = pair.value.as_str().unwrap_or_default().parse();
    let wrong = |problem| ServiceError::Invalid(format!("the annotation {NETWORK} {problem}"));
    parsed.map(Some).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_chooses_the_network() {
        let chosen = |text: &str| chosen(&serde_json::from_str(text).unwrap());
        assert_eq!(chosen("{}").unwrap(), None);
        let outbound =
            r#"{ "annotations": [{ "key": "a" }, { "key": "network", "value": "outbound" }] }"#;
        assert_eq!(chosen(outbound).unwrap(), Some(NetworkAccess::Outbound));
        for value in ["\"all\"", "1", "null"] {
            let body =
                format!(r#"{{ "annotations": [{{ "key": "network", "value": {value} }}] }}"#);
            let error = chosen(&body).unwrap_err().to_string();
            assert_eq!(error, "the annotation network must be none or outbound");
        }
    }
}
