//! `squeezy function`.

use super::{
    ClientError, Connection, action,
    code::decode,
    create::Create,
    show,
    table::{print_list, text},
};
use clap::{Args, Subcommand};
use serde_json::Value;
use std::{path::PathBuf, process::ExitCode};

/// Functions per request.
const PART: usize = 200;

/// Creates, lists and removes functions of a running daemon.
#[derive(Clone, Debug, Args)]
pub struct Functions {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    what: FunctionCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum FunctionCommand {
    Create(Box<Create>),
    /// Lists all functions.
    List {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows one function, as JSON without its code.
    Get {
        /// The function.
        name: String,
        /// Writes its code to this file.
        #[arg(long, value_name = "FILE")]
        save_code: Option<PathBuf>,
    },
    /// Removes a function. Waiting calls are refused, running calls are still answered.
    Delete {
        /// The function.
        name: String,
    },
}

impl Functions {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        let one = |name: &str| Ok::<_, ClientError>(format!("/actions/{}", action(name)?));
        match self.what {
            FunctionCommand::Create(create) => show(&create.run(&self.connection)?),
            FunctionCommand::List { json } => {
                let list = whole(|skip| {
                    let path = format!("/actions?limit={PART}&skip={skip}");
                    self.connection.ask("GET", &path, None)
                })?;
                print_list(
                    &list,
                    json,
                    &[
                        ("NAME", |f| text(&f["name"])),
                        ("VERSION", |f| text(&f["version"])),
                        ("MADE FROM", |f| made_from(&f["exec"])),
                        ("MEMORY MIB", |f| text(&f["limits"]["memory"])),
                        ("TIMEOUT MS", |f| text(&f["limits"]["timeout"])),
                        ("PROBLEM", |f| text(&f["problem"])),
                    ],
                );
            }
            FunctionCommand::Get { name, save_code } => {
                let path = format!("{}?code={}", one(&name)?, save_code.is_some());
                let mut function = self.connection.ask("GET", &path, None)?;
                if let Some(file) = save_code {
                    let saved = std::fs::write(&file, decode(&function["exec"])?);
                    saved.map_err(|error| ClientError::file(&file, &error))?;
                    function["exec"].as_object_mut().and_then(|exec| exec.remove("code"));
                }
                show(&function);
            }
            FunctionCommand::Delete { name } => {
                show(&self.connection.ask("DELETE", &one(&name)?, None)?);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A list that the daemon gives in parts.
fn whole(mut part: impl FnMut(usize) -> Result<Value, ClientError>) -> Result<Value, ClientError> {
    let mut all = Vec::new();
    while let Value::Array(part) = part(all.len())? {
        let is_last = part.len() < PART;
        all.extend(part);
        if is_last {
            break;
        }
    }
    Ok(all.into())
}

/// What a function is made from, in a list.
fn made_from(exec: &Value) -> String {
    match (&exec["image"], exec["components"].as_array()) {
        (_, Some(components)) => {
            let names: Vec<_> = components.iter().filter_map(Value::as_str).collect();
            names.join(",")
        }
        (Value::Null, None) => text(&exec["kind"]),
        (image, None) => text(image),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_asked_for_until_it_ends() {
        for (length, requests) in [(0, 1), (PART - 1, 1), (PART, 2), (2 * PART + 1, 3)] {
            let all: Vec<Value> = (0..length).map(Value::from).collect();
            let mut asked = 0;
            let list = whole(|skip| {
                asked += 1;
                Ok(all.iter().skip(skip).take(PART).cloned().collect())
            });
            assert_eq!((list.unwrap(), asked), (Value::from(all), requests));
        }
    }
}
