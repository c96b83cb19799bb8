//! Parameters on the command line.

use serde_json::Value;

/// What `--param KEY VALUE` gives, if it is given several times: each value is JSON, otherwise a text.
pub fn parameters(given: &[String]) -> impl Iterator<Item = (String, Value)> {
    given.chunks_exact(2).map(|pair| {
        let parsed = serde_json::from_str(&pair[1]);
        (pair[0].clone(), parsed.unwrap_or_else(|_| pair[1].as_str().into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_no_json_is_a_text() {
        let given = ["a", "1", "b", "{\"c\": [2]}", "d", "e f", "g", ""].map(str::to_owned);
        let right =
            [("a", json!(1)), ("b", json!({ "c": [2] })), ("d", json!("e f")), ("g", json!(""))];
        let right = right.map(|(key, value)| (key.to_owned(), value));
        assert_eq!(parameters(&given).collect::<Vec<_>>(), right);
    }
}
