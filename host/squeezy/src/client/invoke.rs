//! `squeezy invoke`.

use super::{ClientError, Connection, action, parameters::parameters, show};
use clap::Args;
use serde_json::{Map, Value, json};
use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Answers longer than this many bytes are abbreviated on a terminal.
const MOST_ON_TERMINAL: usize = 4096;

/// How many characters of a text and values of a list an abbreviation keeps.
const MOST_CHARACTERS: usize = 300;
const MOST_VALUES: usize = 20;

/// Calls a function of a running daemon.
///
/// The answer is printed as JSON; on a terminal, long texts and lists of a large answer are abbreviated.
/// The exit status is 0 when the function answered without an error.
#[derive(Clone, Debug, Args)]
pub struct Invoke {
    #[command(flatten)]
    connection: Connection,
    /// The function.
    name: String,
    /// An argument; the value is JSON, otherwise a text. May be given several times.
    #[arg(long = "param", short, num_args = 2, value_names = ["KEY", "VALUE"])]
    parameters: Vec<String>,
    /// Arguments from a file, a JSON object; --param overrides them.
    #[arg(long, value_name = "FILE")]
    param_file: Option<PathBuf>,
    /// Does not wait for the answer; prints the activation's id.
    #[arg(long)]
    no_wait: bool,
    /// Prints the whole activation instead of the answer alone.
    #[arg(long)]
    full: bool,
}

impl Invoke {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        let mut arguments = match &self.param_file {
            Some(path) => read_object(path)?,
            None => Map::new(),
        };
        arguments.extend(parameters(&self.parameters));
        let path = format!("/actions/{}?blocking={}", action(&self.name)?, !self.no_wait);
        let (status, answer) =
            self.connection.send("POST", &path, Some(&Value::Object(arguments)))?;
        let activation = match status {
            // The call was asynchronous, or took longer than the daemon waits.
            202 => {
                show(&answer);
                return Ok(ExitCode::SUCCESS);
            }
            // The activation, whatever its status.
            _ if answer["activationId"].is_string() => answer,
            _ => return Err(ClientError::refused(status, &answer)),
        };
        let mut answer =
            if self.full { activation.clone() } else { activation["response"]["result"].clone() };
        if io::stdout().is_terminal() && answer.to_string().len() > MOST_ON_TERMINAL {
            abbreviate(&mut answer);
        }
        show(&answer);
        let right = activation["response"]["success"] == json!(true);
        Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Shortens long texts and lists, and notes their lengths.
fn abbreviate(value: &mut Value) {
    match value {
        Value::String(text) => {
            let Some((end, _)) = text.char_indices().nth(MOST_CHARACTERS) else { return };
            let bytes = text.len();
            text.truncate(end);
            text.push_str(&format!("… ({bytes} bytes; redirect the output to see all)"));
        }
        Value::Array(values) => {
            let count = values.len();
            values.truncate(MOST_VALUES);
            values.iter_mut().for_each(abbreviate);
            if count > MOST_VALUES {
                values.push(format!("… ({count} values; redirect the output to see all)").into());
            }
        }
        Value::Object(entries) => entries.values_mut().for_each(abbreviate),
        _ => {}
    }
}

fn read_object(path: &Path) -> Result<Map<String, Value>, ClientError> {
    let text = std::fs::read_to_string(path).map_err(|error| ClientError::file(path, &error))?;
    match serde_json::from_str(&text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(ClientError::file(path, &"not a JSON object")),
        Err(error) => Err(ClientError::file(path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_answer_is_cut_short_where_it_is_long() {
        let mut value = json!({ "html": "ä".repeat(1000), "list": vec![1; 50], "short": ["x"] });
        abbreviate(&mut value);
        let html = value["html"].as_str().unwrap();
        assert!(html.starts_with("ää") && html.contains("(2000 bytes"), "{html}");
        assert_eq!(value["list"].as_array().unwrap().len(), MOST_VALUES + 1);
        assert_eq!(value["short"], json!(["x"]));
    }
}
