//! `squeezy activations`.

use super::{
    ClientError, Connection, action, segment, show,
    table::{print_list, text},
};
use clap::Args;
use serde_json::Value;
use squeezy_openwhisk::activation::Status;
use std::{
    process::ExitCode,
    time::{Duration, UNIX_EPOCH},
};

/// Shows the outcome of calls, the latest first.
///
/// TIME is when a call arrived, in UTC. The status is `success`, `application error` if the
/// function returned an error, `action developer error` if it failed, exceeded a limit or took too
/// long, or `whisk internal error` if it could not be called. WAIT is how long the call waited for
/// an instance, INIT how long that instance took to start, if it was started for the call.
#[derive(Clone, Debug, Args)]
pub struct Activations {
    #[command(flatten)]
    connection: Connection,
    /// Shows this activation instead of a list, as JSON.
    id: Option<String>,
    /// Only calls of this function.
    #[arg(long, value_name = "FUNCTION", conflicts_with = "id")]
    name: Option<String>,
    /// Maximum number of activations.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=200))]
    limit: u16,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Activations {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        if let Some(id) = &self.id {
            let path = format!("/activations/{}", segment(id)?);
            show(&self.connection.ask("GET", &path, None)?);
            return Ok(ExitCode::SUCCESS);
        }
        let name = match &self.name {
            Some(name) => format!("&name={}", action(name)?),
            None => String::new(),
        };
        let path = format!("/activations?limit={}{name}", self.limit);
        let list = self.connection.ask("GET", &path, None)?;
        print_list(
            &list,
            self.json,
            &[
                ("TIME", |a| time(&a["start"])),
                ("ACTIVATION", |a| text(&a["activationId"])),
                ("FUNCTION", |a| text(&a["name"])),
                ("STATUS", |a| status(&a["statusCode"])),
                ("DURATION MS", |a| text(&a["duration"])),
                ("WAIT MS", |a| annotation(a, "waitTime")),
                ("INIT MS", |a| annotation(a, "initTime")),
            ],
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// OpenWhisk's name for a status code.
fn status(code: &Value) -> String {
    code.as_u64()
        .and_then(Status::of_code)
        .map_or("-".to_owned(), |status| status.name().to_owned())
}

/// A time in milliseconds since 1970, as text.
pub fn time(milliseconds: &Value) -> String {
    let since = milliseconds.as_u64().map(Duration::from_millis);
    let moment = since.and_then(|since| UNIX_EPOCH.checked_add(since));
    moment.map_or("-".to_owned(), |moment| humantime::format_rfc3339_seconds(moment).to_string())
}

fn annotation(activation: &Value, key: &str) -> String {
    let annotations = activation["annotations"].as_array();
    let found = annotations.and_then(|all| all.iter().find(|pair| pair["key"] == key));
    found.map_or("-".to_owned(), |pair| text(&pair["value"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn moments_are_told_as_dates() {
        assert_eq!(time(&json!(1_000_000_000_999_u64)), "2001-09-09T01:46:40Z");
        assert_eq!(time(&json!(null)), "-");
    }

    #[test]
    fn annotations_are_found_by_their_key() {
        let activation = json!({ "annotations": [{ "key": "waitTime", "value": 5 }] });
        assert_eq!(annotation(&activation, "waitTime"), "5");
        assert_eq!(annotation(&activation, "initTime"), "-");
    }
}
