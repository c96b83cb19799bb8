//! How many instances of an action are to be kept up.

use super::ServiceError;
use squeezy_node::function::Function;
use squeezy_openwhisk::action::{ActionBody, MINIMUM_INSTANCES};

/// The number that an action's annotation asks for, or else its definition.
pub(super) fn wanted(body: &ActionBody, function: &Function) -> Result<u32, ServiceError> {
    let annotations = body.annotations.iter().flatten();
    let Some(pair) = annotations.rev().find(|pair| pair.key == MINIMUM_INSTANCES) else {
        return Ok(function.minimum_instances.into());
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
        let html = include_str!("../../../../../functions/html/function.toml");
        let mut function = Function::parse(html).unwrap();
        let nothing = ActionBody::default();
        assert_eq!(wanted(&nothing, &function).unwrap(), 0);
        function.minimum_instances = 2;
        assert_eq!(wanted(&nothing, &function).unwrap(), 2, "its definition asks for them");
        let wanted = |text: &str| wanted(&serde_json::from_str(text).unwrap(), &function);
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
