//! `squeezy invoke`, `function` and `activations`: clients of a running daemon.

mod connection;

use clap::{Args, Subcommand};
use connection::{ClientError, Connection};
use serde_json::{Map, Value, json};
use squeezy_runtime::function::Function;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Calls a function and prints what it answers, as JSON.
///
/// The exit status is 0 when the function answered without an error.
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

/// Functions of a running daemon.
#[derive(Clone, Debug, Args)]
pub struct Functions {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    what: FunctionCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum FunctionCommand {
    /// Makes or changes a function.
    Create {
        /// A directory with a function.toml whose image the daemon has, or the image's name.
        function: PathBuf,
        /// What it is called; without it as its image.
        #[arg(long)]
        name: Option<String>,
        /// Changes a function that is there already.
        #[arg(long)]
        overwrite: bool,
    },
    /// Lists all functions.
    List {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows one function, as JSON.
    Get {
        /// The function.
        name: String,
    },
    /// Removes a function: calls that wait are turned away, others answered.
    Delete {
        /// The function.
        name: String,
    },
}

/// What came of calls, the latest first.
#[derive(Clone, Debug, Args)]
pub struct Activations {
    #[command(flatten)]
    connection: Connection,
    /// One activation instead of a list, as JSON.
    id: Option<String>,
    /// Of this function only.
    #[arg(long, value_name = "FUNCTION", conflicts_with = "id")]
    name: Option<String>,
    /// How many at most.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=200))]
    limit: u16,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
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
            200 | 502 if answer["activationId"].is_string() => answer,
            _ => return Err(ClientError::refused(status, &answer)),
        };
        show(if self.full { &activation } else { &activation["response"]["result"] });
        let right = activation["response"]["success"] == json!(true);
        Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Functions {
    /// Does what is asked.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        let one = |name: &str| Ok::<_, ClientError>(format!("/actions/{}", segment(name)?));
        match self.what {
            FunctionCommand::Create { function, name, overwrite } => {
                let image = image(&function)?;
                let path = one(name.as_deref().unwrap_or(&image))?;
                let body = json!({ "exec": { "kind": "blackbox", "image": image } });
                let path = format!("{path}?overwrite={overwrite}");
                show(&self.connection.ask("PUT", &path, Some(&body))?);
            }
            FunctionCommand::List { json } => {
                let list = self.connection.ask("GET", "/actions?limit=200", None)?;
                if json {
                    show(&list);
                } else {
                    table(
                        &list,
                        &[
                            ("NAME", |f| text(&f["name"])),
                            ("VERSION", |f| text(&f["version"])),
                            ("IMAGE", |f| text(&f["exec"]["image"])),
                            ("MEMORY MIB", |f| text(&f["limits"]["memory"])),
                            ("TIMEOUT MS", |f| text(&f["limits"]["timeout"])),
                        ],
                    );
                }
            }
            FunctionCommand::Get { name } => {
                show(&self.connection.ask("GET", &one(&name)?, None)?)
            }
            FunctionCommand::Delete { name } => {
                show(&self.connection.ask("DELETE", &one(&name)?, None)?);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Activations {
    /// Shows them.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        if let Some(id) = &self.id {
            let path = format!("/activations/{}", segment(id)?);
            show(&self.connection.ask("GET", &path, None)?);
            return Ok(ExitCode::SUCCESS);
        }
        let name = match &self.name {
            Some(name) => format!("&name={}", segment(name)?),
            None => String::new(),
        };
        let path = format!("/activations?limit={}{name}", self.limit);
        let list = self.connection.ask("GET", &path, None)?;
        if self.json {
            show(&list);
        } else {
            table(
                &list,
                &[
                    ("ACTIVATION", |a| text(&a["activationId"])),
                    ("FUNCTION", |a| text(&a["name"])),
                    ("STATUS", |a| text(&a["response"]["status"])),
                    ("DURATION MS", |a| text(&a["duration"])),
                    ("WAIT MS", |a| annotation(a, "waitTime")),
                    ("INIT MS", |a| annotation(a, "initTime")),
                ],
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The name of the image that a function is made of.
fn image(function: &Path) -> Result<String, ClientError> {
    let definition = function.join("function.toml");
    if !definition.is_file() {
        return Ok(function.to_string_lossy().into_owned());
    }
    let text = std::fs::read_to_string(&definition)
        .map_err(|error| ClientError::file(&definition, &error))?;
    let function =
        Function::parse(&text).map_err(|error| ClientError::file(&definition, &error))?;
    Ok(function.name)
}

fn read_object(path: &Path) -> Result<Map<String, Value>, ClientError> {
    let text = std::fs::read_to_string(path).map_err(|error| ClientError::file(path, &error))?;
    match serde_json::from_str(&text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(ClientError::file(path, &"it is no JSON object")),
        Err(error) => Err(ClientError::file(path, &error)),
    }
}

/// A name as a part of a path.
fn segment(name: &str) -> Result<&str, ClientError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if !name.is_empty() && name.bytes().all(plain) && name != "." && name != ".." {
        Ok(name)
    } else {
        Err(ClientError::Name(name.to_owned()))
    }
}

fn show(value: &Value) {
    println!("{value:#}");
}

/// A value as it stands in a table.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn annotation(activation: &Value, key: &str) -> String {
    let annotations = activation["annotations"].as_array();
    let found = annotations.and_then(|all| all.iter().find(|pair| pair["key"] == key));
    found.map_or("-".to_owned(), |pair| text(&pair["value"]))
}

/// One column: its heading, and what of a row stands in it.
type Column = (&'static str, fn(&Value) -> String);

fn table(list: &Value, columns: &[Column]) {
    let empty = Vec::new();
    let rows: Vec<Vec<String>> =
        std::iter::once(columns.iter().map(|(h, _)| (*h).to_owned()).collect())
            .chain(
                list.as_array()
                    .unwrap_or(&empty)
                    .iter()
                    .map(|row| columns.iter().map(|(_, cell)| cell(row)).collect()),
            )
            .collect();
    let width = |column: usize| rows.iter().map(|row: &Vec<String>| row[column].len()).max();
    let widths: Vec<_> = (0..columns.len()).map(|c| width(c).unwrap_or(0)).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place() {
        assert!(segment("html-2.x_y").is_ok());
        for wrong in ["", "..", "a/b", "a?b", "a b", "é"] {
            assert!(segment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn annotations_are_found_by_their_key() {
        let activation = json!({ "annotations": [{ "key": "waitTime", "value": 5 }] });
        assert_eq!(annotation(&activation, "waitTime"), "5");
        assert_eq!(annotation(&activation, "initTime"), "-");
    }
}
