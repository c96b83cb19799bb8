//! `squeezy logs`.

use super::{ClientError, Connection, action, segment};
use crate::output::print;
use clap::Args;
use serde_json::{Value, json};
use std::{collections::HashSet, process::ExitCode, thread::sleep, time::Duration};

/// Interval between polls for new activations.
const PAUSE: Duration = Duration::from_secs(1);

/// Activations per request.
const PART: usize = 200;

/// Shows what functions wrote during calls.
///
/// For one activation, each line is printed with its time and stream. For several, oldest first, each
/// line is preceded by the function and the activation; activations without output are left out. As
/// JSON, each activation is a line with `activationId`, `name` and `logs`.
#[derive(Clone, Debug, Args)]
pub struct Logs {
    #[command(flatten)]
    connection: Connection,
    /// Only this activation.
    id: Option<String>,
    /// Only calls of this function.
    #[arg(long, value_name = "FUNCTION", conflicts_with = "id")]
    name: Option<String>,
    /// Number of latest activations to start with.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=200), conflicts_with = "id")]
    limit: u16,
    /// Continues with activations as they end, until Ctrl-C.
    #[arg(long, short, conflicts_with = "id")]
    follow: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Logs {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        if let Some(id) = &self.id {
            if self.json {
                let path = format!("/activations/{}", segment(id)?);
                let activation = self.connection.ask("GET", &path, None)?;
                self.print(&activation, &self.lines(id)?);
            } else {
                self.lines(segment(id)?)?.iter().for_each(print);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let first = self.list(self.limit.into(), 0)?;
        self.show(&first)?;
        if self.follow { self.follow(&first) } else { Ok(ExitCode::SUCCESS) }
    }

    /// Continues with the activations that follow these.
    fn follow(&self, first: &[Value]) -> Result<ExitCode, ClientError> {
        // If no earlier ones were requested, start after the latest.
        let mut seen = match first.first() {
            Some(activation) => Some(id(activation)),
            None => self.list(1, 0)?.first().map(id),
        };
        loop {
            sleep(PAUSE);
            let new = self.since(seen.as_deref())?;
            self.show(&new)?;
            seen = new.first().map(id).or(seen);
        }
    }

    /// Activations since the last one shown, latest first.
    fn since(&self, seen: Option<&str>) -> Result<Vec<Value>, ClientError> {
        let mut new = Vec::new();
        let mut known = HashSet::new();
        loop {
            let part = self.list(PART, new.len())?;
            let is_last = part.len() < PART;
            for activation in part {
                let id = id(&activation);
                if Some(id.as_str()) == seen {
                    return Ok(new);
                }
                // The list may have shifted between requests.
                if known.insert(id) {
                    new.push(activation);
                }
            }
            if is_last {
                return Ok(new);
            }
        }
    }

    fn list(&self, limit: usize, skip: usize) -> Result<Vec<Value>, ClientError> {
        // The daemon takes 0 for the maximum.
        if limit == 0 {
            return Ok(Vec::new());
        }
        let name = match &self.name {
            Some(name) => format!("&name={}", action(name)?),
            None => String::new(),
        };
        let path = format!("/activations?limit={limit}&skip={skip}{name}");
        match self.connection.ask("GET", &path, None)? {
            Value::Array(list) => Ok(list),
            _ => Ok(Vec::new()),
        }
    }

    /// Prints the logs of these activations.
    fn show(&self, activations: &[Value]) -> Result<(), ClientError> {
        for activation in activations.iter().rev() {
            match self.lines(segment(&id(activation))?) {
                // The daemon has dropped it in the meantime.
                Err(ClientError::Refused { status: 404, .. }) => {}
                lines => self.print(activation, &lines?),
            }
        }
        Ok(())
    }

    /// Prints the logs of one activation.
    fn print(&self, activation: &Value, lines: &[String]) {
        let (id, name) = (id(activation), activation["name"].as_str().unwrap_or_default());
        if !self.json {
            lines.iter().for_each(|line| print(format_args!("{name} {id:.8} {line}")));
        } else if !lines.is_empty() {
            print(json!({ "activationId": id, "name": name, "logs": lines }));
        }
    }

    fn lines(&self, id: &str) -> Result<Vec<String>, ClientError> {
        let answer = self.connection.ask("GET", &format!("/activations/{id}/logs"), None)?;
        let lines = answer["logs"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(lines.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }
}

fn id(activation: &Value) -> String {
    activation["activationId"].as_str().unwrap_or_default().to_owned()
}
