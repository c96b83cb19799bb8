//! `squeezy invoke`.

use super::{ClientError, Connection, action, parameters::parameters, segment, show};
use crate::output::complain;
use clap::Args;
use serde_json::{Map, Value, json};
use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
    thread::sleep,
    time::{Duration, Instant},
};

/// Interval between requests for the outcome of a call that has not been answered in time.
const PAUSE: Duration = Duration::from_secs(1);

/// How often it is said that it is still waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answers longer than this many bytes are abbreviated on a terminal.
const MOST_ON_TERMINAL: usize = 4096;

/// How many characters of a text and values of a list an abbreviation keeps.
const MOST_CHARACTERS: usize = 300;
const MOST_VALUES: usize = 20;

/// Calls a function of a running daemon.
///
/// The answer is printed as JSON; on a terminal, long texts and lists of a large answer are abbreviated.
/// The exit status is 0 when the function answered without an error. An answer that takes longer than a minute is
/// waited for, too, which standard error says: its function's time limit bounds a call, and Ctrl-C ends the waiting, but
/// not the call.
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
    /// Does not wait for the answer; prints the activation's ID.
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
        let begin = Instant::now();
        let (status, answer) =
            self.connection.send("POST", &path, Some(&Value::Object(arguments)))?;
        let activation = match status {
            202 if self.no_wait => {
                show(&answer);
                return Ok(ExitCode::SUCCESS);
            }
            // It takes longer than the daemon waits, or there was no memory for the answer.
            202 => self.outcome(&answer, begin)?,
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

    /// The activation of a call that was accepted, once it is there.
    fn outcome(&self, accepted: &Value, begin: Instant) -> Result<Value, ClientError> {
        let id = segment(accepted["activationId"].as_str().unwrap_or_default())?;
        let (name, path) = (&self.name, format!("/activations/{id}"));
        let waited = || begin.elapsed().as_secs();
        complain(format_args!(
            "{name}: no answer after {} s, waiting for it; `squeezy activations {id}` has it later, too",
            waited()
        ));
        let mut said = Instant::now();
        once_there(
            || self.connection.send("GET", &path, None),
            || {
                if said.elapsed() >= PATIENCE {
                    said = Instant::now();
                    complain(format_args!("{name}: no answer after {} s", waited()));
                }
                sleep(PAUSE);
            },
        )
    }
}

/// Asks for an activation until it is there.
fn once_there(
    mut ask: impl FnMut() -> Result<(u16, Value), ClientError>,
    mut pause: impl FnMut(),
) -> Result<Value, ClientError> {
    loop {
        match ask()? {
            (200, activation) => return Ok(activation),
            // The call runs, or there is no memory for its outcome at the moment.
            (404 | 429 | 503, _) => pause(),
            (status, answer) => return Err(ClientError::refused(status, &answer)),
        }
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
    fn an_outcome_is_asked_for_until_it_is_there_or_refused() {
        for (last, right) in [(200, Some("f")), (401, None)] {
            let answers = [(404, json!({})), (503, json!({})), (429, json!({}))];
            let mut answers = answers.into_iter().chain([(last, json!({ "name": "f" }))]);
            let mut pauses = 0;
            let outcome = once_there(|| Ok(answers.next().unwrap()), || pauses += 1);
            assert_eq!(outcome.as_ref().ok().and_then(|outcome| outcome["name"].as_str()), right);
            assert_eq!((pauses, answers.next()), (3, None));
        }
    }

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
