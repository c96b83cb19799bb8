//! `squeezy invoke`.

use super::{ClientError, Connection, segment, show};
use clap::Args;
use serde_json::{Map, Value, json};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Calls a function of a running daemon.
///
/// What it answers is printed as JSON. The exit status is 0 when the function answered without an error.
#[derive(Clone, Debug, Args)]
pub struct Invoke {
    #[command(flatten)]
    connection: Connection,
    /// The function.
    name: String,
    /// An argument; the value is JSON, or a text if it is none. May be given several times.
    #[arg(long = "param", short, num_args = 2, value_names = ["KEY", "VALUE"])]
    parameters: Vec<String>,
    /// Arguments from a file, a JSON object; --param goes before them.
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
    /// Calls the function.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        let mut arguments = match &self.param_file {
            Some(path) => read_object(path)?,
            None => Map::new(),
        };
        for pair in self.parameters.chunks(2) {
            let [key, value] = pair else { continue };
            let parsed = serde_json::from_str(value);
            arguments.insert(key.clone(), parsed.unwrap_or_else(|_| value.as_str().into()));
        }
        let path = format!("/actions/{}?blocking={}", segment(&self.name)?, !self.no_wait);
        let (status, answer) =
            self.connection.send("POST", &path, Some(&Value::Object(arguments)))?;
        let activation = match status {
            // It was not waited for, or not for so long.
            202 => {
                show(&answer);
                return Ok(ExitCode::SUCCESS);
            }
            // However it ended.
            _ if answer["activationId"].is_string() => answer,
            _ => return Err(ClientError::refused(status, &answer)),
        };
        show(if self.full { &activation } else { &activation["response"]["result"] });
        let right = activation["response"]["success"] == json!(true);
        Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn read_object(path: &Path) -> Result<Map<String, Value>, ClientError> {
    let text = std::fs::read_to_string(path).map_err(|error| ClientError::file(path, &error))?;
    match serde_json::from_str(&text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(ClientError::file(path, &"it is no JSON object")),
        Err(error) => Err(ClientError::file(path, &error)),
    }
}
