//! How many instances of its action a client wants to be kept up.

use super::ServiceError;
use squeezy_openwhisk::action::{ActionBody, MINIMUM_INSTANCES};

/// The number that an action's annotation asks for, or none.
pub(super) fn wanted(body: &ActionBody) -> Result<u32, ServiceError> {
    let annotations = body.annotations.iter().flatten();
    let Some(pair) = annotations.rev().find(|pair| pair.key == MINIMUM_INSTANCES) else {
        return Ok(0);
    };
    let number = pair.value.as_u64().and_then(|number| u32::try_from(number).ok());
    let wrong = || format!("the annotation {MINIMUM_INSTANCES} must be a number of instances");
    number.ok_or_else(|| ServiceError::Invalid(wrong()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_says_how_many() {
        let wanted = |text: &str| wanted(&serde_json::from_str(text).unwrap());
        assert_eq!(wanted("{}").unwrap(), 0);
        let with = |value: &str| {
            let pair = format!(r#"{{ "key": "minimum-instances", "value": {value} }}"#);
            wanted(&format!(r#"{{ "annotations": [{{ "key": "a" }}, {pair}] }}"#))
        };
        assert_eq!(with("3").unwrap(), 3);
        assert_eq!(with("0").unwrap(), 0);
        for value in ["-1", "1.5", "\"1\"", "null", "4294967296"] {
            let error = with(value).unwrap_err().to_string();
            let right = "the annotation minimum-instances must be a number of instances";
            assert_eq!(error, right, "{value}");
        }
    }
}
