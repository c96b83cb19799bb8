//! `squeezy function`.

use super::{
    ClientError, Connection, action,
    code::{CodeFile, decode, full_name},
    image::Source,
    networks::Networks,
    pulled::while_pulling,
    show,
    table::{print_list, text},
};
use crate::output::complain;
use bytesize::ByteSize;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use squeezy_openwhisk::{
    action::{MINIMUM_INSTANCES, NETWORK, NETWORK_ALLOW, NETWORK_DENY},
    sequence::SEQUENCE,
};
use squeezy_protocol::NetworkAccess;
use std::{path::PathBuf, process::ExitCode};

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
    /// Creates or changes a function.
    ///
    /// squeezy function create hello hello.py
    Create {
        /// With a FILE, the function's name; otherwise what it is made from.
        ///
        /// That is a file with code, a directory with a function.toml, an OCI image, or the name of an
        /// image.
        ///
        /// The image of a directory with a function.toml must already be built, unless its
        /// function.toml names an OCI image: that, an archive (as made by `docker save`) and an
        /// OCI layout directory are converted into an image first, which needs root and a daemon
        /// on this machine.
        #[arg(value_name = "FUNCTION|NAME")]
        function: PathBuf,
        /// What it is made from.
        ///
        /// A .py, .js, .jar or .zip file, or a program or script for Linux, is code: one of the runtimes
        /// (the packages squeezy-runtime-NAME, or `make runtimes`) runs it.
        file: Option<PathBuf>,
        /// An image in a registry that it is made from, such as registry.example/team/thing:1.2.
        ///
        /// The daemon pulls it, and keeps to the digest that a tag means now.
        #[arg(long, value_name = "REFERENCE", conflicts_with_all = ["file", "kind", "main", "name"])]
        image: Option<String>,
        /// Functions that it calls one after the other, each with the result of the one before.
        ///
        /// squeezy function create both --sequence first,package/second
        #[arg(
            long,
            value_name = "FUNCTIONS",
            value_delimiter = ',',
            conflicts_with_all = [
                "file",
                "image",
                "kind",
                "main",
                "name",
                "network",
                "network_deny",
                "network_allow",
                "minimum_instances",
            ]
        )]
        sequence: Vec<String>,
        /// The function's name; the default is that of its image or its file.
        #[arg(long, conflicts_with = "file")]
        name: Option<String>,
        /// The kind of its code, such as python:3.11; the default is what the file looks like.
        #[arg(long)]
        kind: Option<String>,
        /// The name of its code's entry point, which Java needs.
        #[arg(long)]
        main: Option<String>,
        /// Its network: none, or outbound.
        ///
        /// The default is what it had or, for a new function, what its definition or the daemon's configuration
        /// says.
        #[arg(long, value_name = "NETWORK")]
        network: Option<NetworkAccess>,
        /// Networks that it does not reach, such as 0.0.0.0/0 or 10.1.2.3:5432, with commas between them, or none.
        ///
        /// Whatever its image allows, these are closed, but for smaller ones in --network-allow. The default is what it
        /// had.
        #[arg(long, value_name = "NETWORKS")]
        network_deny: Option<Networks>,
        /// Networks that it reaches although --network-deny lists larger ones or they are private, or none.
        ///
        /// Private ones are only for those to whose namespace the operator allows them (`squeezy namespace set`),
        /// or whose image does. The default is what it had.
        #[arg(long, value_name = "NETWORKS")]
        network_allow: Option<Networks>,
        /// How many instances are kept up without calls, so that calls find one.
        ///
        /// The default is what it had, or none.
        #[arg(long, value_name = "COUNT")]
        minimum_instances: Option<u32>,
        /// Whether anybody may call it over HTTP, without the key: yes, no, or raw.
        ///
        /// Its address is then /api/v1/web/guest/default/NAME. With raw, it gets the requests as they are.
        #[arg(long, value_name = "WEB")]
        web: Option<Web>,
        /// Changes an existing function.
        #[arg(long)]
        overwrite: bool,
    },
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
            FunctionCommand::Create {
                function,
                file,
                image,
                sequence,
                name,
                kind,
                main,
                network,
                network_deny,
                network_allow,
                minimum_instances,
                web,
                overwrite,
            } => {
                let name = match file.is_some() || image.is_some() || !sequence.is_empty() {
                    true => Some(function.to_string_lossy().into_owned()),
                    false => name,
                };
                let made = match image {
                    Some(image) => Made::Pulled(image),
                    None if !sequence.is_empty() => Made::Sequence(sequence),
                    None => {
                        let file = file.unwrap_or(function);
                        match CodeFile::find(&file, kind.as_deref(), main.as_deref())? {
                            Some(code) => Made::Code(code),
                            None => Made::Image(Source::find(&file)?),
                        }
                    }
                };
                let path = one(&name.unwrap_or_else(|| made.name()))?;
                // Checked first, because building an image takes a while.
                let existing = self.connection.send("GET", &format!("{path}?code=false"), None)?;
                let existing = match existing {
                    (200, _) if !overwrite => return Err(ClientError::Exists),
                    (200 | 404, existing) => existing,
                    (status, answer) => return Err(ClientError::refused(status, &answer)),
                };
                let mut body = json!({ "exec": made.exec()? });
                let single = [
                    (NETWORK, network.map(|network| json!(network))),
                    (NETWORK_DENY, network_deny.map(|networks| json!(networks))),
                    (NETWORK_ALLOW, network_allow.map(|networks| json!(networks))),
                    (MINIMUM_INSTANCES, minimum_instances.map(|minimum| json!(minimum))),
                ];
                let single = single.into_iter().filter_map(|(key, value)| Some((key, value?)));
                let set: Vec<_> =
                    single.chain(web.into_iter().flat_map(Web::annotations)).collect();
                if !set.is_empty() {
                    body["annotations"] = with(&existing["annotations"], set);
                }
                let path = format!("{path}?overwrite={overwrite}");
                let put = || self.connection.ask_patiently("PUT", &path, Some(&body));
                let made = while_pulling(&self.connection, put);
                show(&made.map_err(|error| match error {
                    ClientError::Refused { status: 409, .. } => ClientError::Exists,
                    other => other,
                })?);
            }
            FunctionCommand::List { json } => {
                let list = self.connection.ask("GET", "/actions?limit=200", None)?;
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

/// These annotations, and those that are set.
fn with(annotations: &Value, set: Vec<(&str, Value)>) -> Value {
    let is_set = |pair: &&Value| set.iter().any(|(key, _)| pair["key"] == *key);
    let others = annotations.as_array().into_iter().flatten().filter(|pair| !is_set(pair));
    let set = set.iter().map(|(key, value)| json!({ "key": key, "value": value }));
    others.cloned().chain(set).collect()
}

/// Whether anybody may call a function over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Web {
    #[value(alias = "true")]
    Yes,
    Raw,
    #[value(alias = "false")]
    No,
}

impl Web {
    /// The annotations that say so.
    fn annotations(self) -> Vec<(&'static str, Value)> {
        let is_web = self != Self::No;
        vec![
            ("web-export", is_web.into()),
            ("raw-http", (self == Self::Raw).into()),
            ("final", is_web.into()),
        ]
    }
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

/// What a function is made from.
enum Made {
    Image(Source),
    Pulled(String),
    Code(CodeFile),
    /// The functions that it calls.
    Sequence(Vec<String>),
}

impl Made {
    /// The function's default name.
    fn name(&self) -> String {
        match self {
            Self::Image(source) => source.name().to_owned(),
            Self::Pulled(image) => image.clone(),
            Self::Code(code) => code.name(),
            Self::Sequence(functions) => functions.join(","),
        }
    }

    /// As the daemon takes it; an image is built first if necessary.
    fn exec(&self) -> Result<Value, ClientError> {
        match self {
            Self::Image(source) => {
                let image = source.image()?;
                Ok(json!({ "kind": "blackbox", "image": image.name, "digest": image.digest }))
            }
            Self::Pulled(image) => Ok(json!({ "kind": "blackbox", "image": image })),
            Self::Sequence(functions) => {
                // `/NAMESPACE/NAME` is what it is.
                let component = |name: &String| match name.strip_prefix('/') {
                    Some(_) => Ok(name.clone()),
                    None => Ok(format!("/_/{}", action(name)?)),
                };
                let components = functions.iter().map(component);
                let components = components.collect::<Result<Vec<_>, ClientError>>()?;
                Ok(json!({ "kind": SEQUENCE, "components": components }))
            }
            Self::Code(code) => {
                let exec = code.exec()?;
                let kind = full_name(exec["kind"].as_str().unwrap_or_default());
                let sent = ByteSize(exec["code"].as_str().map_or(0, str::len) as u64);
                complain(format_args!("code of the kind {kind}, {sent} as it is sent"));
                Ok(exec)
            }
        }
    }
}
