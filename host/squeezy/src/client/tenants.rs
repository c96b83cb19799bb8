//! `squeezy namespace` and `squeezy key`.

use super::{
    ClientError, Connection,
    activations::time,
    networks::Networks,
    segment, show,
    table::{print_list, text},
};
use crate::{output::print, serve::Role};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use std::{
    fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt, path::PathBuf, process::ExitCode,
};

/// Creates, lists and removes namespaces of a running daemon.
///
/// A namespace has actions, packages, activations, VMs and keys of its own. It needs the key in the daemon's state directory.
#[derive(Clone, Debug, Args)]
pub struct Namespaces {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    what: NamespaceCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum NamespaceCommand {
    /// Creates a namespace. Its first key is made with `squeezy key create`.
    ///
    /// From the first one on, the page and the metrics need a key.
    Create {
        /// Its name.
        name: String,
        #[command(flatten)]
        allowed: AllowedArgs,
    },
    /// Changes what a namespace may have; what is not given stays.
    Set {
        /// The namespace.
        name: String,
        #[command(flatten)]
        allowed: AllowedArgs,
    },
    /// Lists all namespaces.
    List {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows one, as JSON. A key of the namespace is enough; its name is then not needed.
    Show {
        /// The namespace.
        #[arg(default_value = "_")]
        name: String,
    },
    /// Removes a namespace with its keys and activations. Running calls are completed first.
    Delete {
        /// The namespace.
        name: String,
        /// Removes its actions and packages too, and ends calls that still run 2 s later.
        #[arg(long)]
        force: bool,
    },
}

#[derive(Clone, Debug, Args)]
struct AllowedArgs {
    /// What it may have, such as calls_per_minute=600, or none for no bound; may be repeated.
    ///
    /// memory_mb: memory of its VMs and instances at a time, in MiB. weight: its part of the memory where there is not
    /// enough for all, 1 by default. concurrent_calls: calls at a time, waiting ones included. calls_per_minute.
    /// actions, and as many packages. code_mb: the code of all its actions, in MiB. image_mb: the
    /// images from registries that they have, in MiB. activations: how many are kept.
    #[arg(long = "quota", value_name = "NAME=NUMBER|none", value_parser = quota)]
    quotas: Vec<(String, Option<u64>)>,
    /// Private networks that its functions may open for themselves, such as 10.1.0.0/16 or 10.1.2.3:5432, with commas
    /// between them, or none.
    ///
    /// A function reaches those that it lists itself (`squeezy function create --network-allow`), but what its image
    /// denies. Functions that list what is not allowed any more lose it.
    #[arg(long, value_name = "NETWORKS")]
    network_allow: Option<Networks>,
}

impl AllowedArgs {
    fn body(self) -> Value {
        let quotas: Map<_, _> =
            self.quotas.into_iter().map(|(name, number)| (name, number.into())).collect();
        let mut body = json!({ "quotas": quotas });
        if let Some(networks) = self.network_allow {
            body["network_allow"] = json!(networks);
        }
        body
    }
}

fn quota(text: &str) -> Result<(String, Option<u64>), String> {
    let wanted = || "must be a quota's name, '=', and a number or none".to_owned();
    let (name, number) = text.split_once('=').ok_or_else(wanted)?;
    let number = match number {
        "none" => None,
        number => Some(number.parse().map_err(|_| wanted())?),
    };
    Ok((name.to_owned(), number))
}

impl Namespaces {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        let one = |name: &str| Ok::<_, ClientError>(format!("/namespaces/{}", segment(name)?));
        let ask = |method, path: &str| self.connection.ask_daemon(method, path, None);
        match self.what {
            NamespaceCommand::Create { name, allowed } => {
                let body = allowed.body();
                show(&self.connection.ask_daemon("PUT", &one(&name)?, Some(&body))?);
            }
            NamespaceCommand::Set { name, allowed } => {
                // One that is not there is not made.
                ask("GET", &one(&name)?)?;
                let path = format!("{}?overwrite=true", one(&name)?);
                show(&self.connection.ask_daemon("PUT", &path, Some(&allowed.body()))?);
            }
            NamespaceCommand::Show { name } => show(&ask("GET", &one(&name)?)?),
            NamespaceCommand::Delete { name, force } => {
                let path = format!("{}?force={force}", one(&name)?);
                show(&ask("DELETE", &path)?);
            }
            NamespaceCommand::List { json } => {
                let names = ask("GET", "/namespaces")?;
                let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
                let all = names.map(|name| ask("GET", &one(name)?));
                let all = Value::Array(all.collect::<Result<_, _>>()?);
                print_list(
                    &all,
                    json,
                    &[
                        ("NAMESPACE", |n| text(&n["name"])),
                        ("CREATED", |n| time_or_none(&n["created"])),
                        ("KEYS", |n| text(&n["keys"])),
                        ("CALLS", |n| text(&n["usage"]["calls"])),
                        ("GiB s PROMISED", |n| text(&n["usage"]["promised_gib_seconds"])),
                        ("GiB s OCCUPIED", |n| text(&n["usage"]["occupied_gib_seconds"])),
                    ],
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Creates, lists and revokes keys of a namespace.
///
/// A namespace may have several keys at a time. To replace one without a gap, create another, give it to the clients,
/// and revoke the first once `squeezy key list` shows that nobody uses it any more. It needs the key in the daemon's
/// state directory.
#[derive(Clone, Debug, Args)]
pub struct Keys {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    what: KeyCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum KeyCommand {
    /// Creates a key and prints it. It is not shown again.
    Create {
        /// A name to know it by.
        name: String,
        /// Its namespace.
        #[arg(long, default_value = "guest")]
        namespace: String,
        /// What it is for: change (also call and read), read, call (also the outcome of a call by its ID), or, in
        /// guest, monitor (the numbers of all namespaces).
        #[arg(long, default_value = "change")]
        role: Role,
        /// Writes it to this new file, which only its owner can read, instead of printing it.
        #[arg(long, value_name = "FILE")]
        save: Option<PathBuf>,
    },
    /// Lists the keys of a namespace with when they were last used, without their secrets.
    List {
        /// The namespace.
        #[arg(long, default_value = "guest")]
        namespace: String,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revokes a key at once.
    Revoke {
        /// The key's name.
        name: String,
        /// Its namespace.
        #[arg(long, default_value = "guest")]
        namespace: String,
    },
}

impl Keys {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        let path = |namespace: &str| {
            Ok::<_, ClientError>(format!("/namespaces/{}/keys", segment(namespace)?))
        };
        match self.what {
            KeyCommand::Create { name, namespace, role, save } => {
                let path = format!("{}/{}", path(&namespace)?, segment(&name)?);
                // Before there is a key that nobody would know.
                let file = save.map(|path| match new_file(&path) {
                    Ok(file) => Ok((path, file)),
                    Err(error) => Err(ClientError::file(&path, &error)),
                });
                let file = file.transpose()?;
                let body = json!({ "role": role });
                let made = self.connection.ask_daemon("PUT", &path, Some(&body));
                let key = match (made, &file) {
                    (Ok(made), _) => text(&made["key"]),
                    (Err(error), None) => return Err(error),
                    (Err(error), Some((path, _))) => {
                        let _ = std::fs::remove_file(path);
                        return Err(error);
                    }
                };
                match file {
                    None => print(key),
                    Some((path, mut file)) => {
                        writeln!(file, "{key}").map_err(|error| ClientError::file(&path, &error))?
                    }
                }
            }
            KeyCommand::List { namespace, json } => {
                let list = self.connection.ask_daemon("GET", &path(&namespace)?, None)?;
                print_list(
                    &list,
                    json,
                    &[
                        ("KEY", |k| text(&k["name"])),
                        ("ROLE", |k| text(&k["role"])),
                        ("CREATED", |k| time_or_none(&k["created"])),
                        ("LAST USED", |k| time_or_none(&k["last_used"])),
                        ("ID", |k| text(&k["id"])),
                    ],
                );
            }
            KeyCommand::Revoke { name, namespace } => {
                let path = format!("{}/{}", path(&namespace)?, segment(&name)?);
                self.connection.ask_daemon("DELETE", &path, None)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn new_file(path: &std::path::Path) -> std::io::Result<std::fs::File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// A time in milliseconds since 1970, or that there is none.
fn time_or_none(milliseconds: &Value) -> String {
    if *milliseconds == json!(0) { "-".to_owned() } else { time(milliseconds) }
}
