//! `squeezy function`.

use super::{
    ClientError, Connection,
    code::{CodeFile, decode, full_name},
    image::Source,
    segment, show,
    table::{print_list, text},
};
use crate::output::complain;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
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
        /// (`make runtimes`) runs it.
        file: Option<PathBuf>,
        /// The function's name; the default is that of its image or its file.
        #[arg(long, conflicts_with = "file")]
        name: Option<String>,
        /// The kind of its code, such as python:3.11; the default is what the file looks like.
        #[arg(long)]
        kind: Option<String>,
        /// The name of its code's entry point, which Java needs.
        #[arg(long)]
        main: Option<String>,
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
        let one = |name: &str| Ok::<_, ClientError>(format!("/actions/{}", segment(name)?));
        match self.what {
            FunctionCommand::Create { function, file, name, kind, main, overwrite } => {
                let name = match &file {
                    Some(_) => Some(function.to_string_lossy().into_owned()),
                    None => name,
                };
                let file = file.unwrap_or(function);
                let made = match CodeFile::find(&file, kind.as_deref(), main.as_deref())? {
                    Some(code) => Made::Code(code),
                    None => Made::Image(Source::find(&file)?),
                };
                let path = one(&name.unwrap_or_else(|| made.name()))?;
                // Checked first, because building an image takes a while.
                match self.connection.send("GET", &format!("{path}?code=false"), None)? {
                    (200, _) if !overwrite => return Err(ClientError::Exists),
                    (200 | 404, _) => {}
                    (status, answer) => return Err(ClientError::refused(status, &answer)),
                }
                let body = json!({ "exec": made.exec()? });
                let path = format!("{path}?overwrite={overwrite}");
                let made = self.connection.ask("PUT", &path, Some(&body));
                show(&made.map_err(|error| match error {
                    ClientError::Refused { status: 409, .. } => ClientError::Exists,
                    other => other,
                })?);
            }
            FunctionCommand::List { json } => {
                let list = self.connection.ask("GET", "/actions?limit=200", None)?;
                if json {
                    show(&list);
                } else {
                    print_list(
                        &list,
                        &[
                            ("NAME", |f| text(&f["name"])),
                            ("VERSION", |f| text(&f["version"])),
                            ("MADE FROM", |f| match &f["exec"]["image"] {
                                Value::Null => text(&f["exec"]["kind"]),
                                image => text(image),
                            }),
                            ("MEMORY MIB", |f| text(&f["limits"]["memory"])),
                            ("TIMEOUT MS", |f| text(&f["limits"]["timeout"])),
                            ("PROBLEM", |f| text(&f["problem"])),
                        ],
                    );
                }
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

/// What a function is made from.
enum Made {
    Image(Source),
    Code(CodeFile),
}

impl Made {
    /// The function's default name.
    fn name(&self) -> String {
        match self {
            Self::Image(source) => source.name().to_owned(),
            Self::Code(code) => code.name(),
        }
    }

    /// As the daemon takes it; an image is built first if necessary.
    fn exec(&self) -> Result<Value, ClientError> {
        match self {
            Self::Image(source) => {
                let image = source.image()?;
                Ok(json!({ "kind": "blackbox", "image": image.name, "digest": image.digest }))
            }
            Self::Code(code) => {
                let exec = code.exec()?;
                let length = exec["code"].as_str().map_or(0, str::len);
                let kind = full_name(exec["kind"].as_str().unwrap_or_default());
                complain(format_args!("code of the kind {kind}, {length} bytes as it is sent"));
                Ok(exec)
            }
        }
    }
}
