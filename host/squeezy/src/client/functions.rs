//! `squeezy function`.

use super::{
    ClientError, Connection,
    image::Source,
    segment, show,
    table::{print_list, text},
};
use clap::{Args, Subcommand};
use serde_json::json;
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
    Create {
        /// A directory with a function.toml, an OCI image, or the name of an image.
        ///
        /// The image of a directory with a function.toml must already be built, unless its
        /// function.toml names an OCI image: that, an archive (as made by `docker save`) and an
        /// OCI layout directory are converted into an image first, which needs root and a daemon
        /// on this machine.
        function: PathBuf,
        /// The function's name; the default is that of its image.
        #[arg(long)]
        name: Option<String>,
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
    /// Shows one function, as JSON.
    Get {
        /// The function.
        name: String,
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
            FunctionCommand::Create { function, name, overwrite } => {
                let source = Source::find(&function)?;
                let path = one(name.as_deref().unwrap_or(source.name()))?;
                // Checked first, because building an image takes a while.
                match self.connection.send("GET", &path, None)? {
                    (200, _) if !overwrite => return Err(ClientError::Exists),
                    (200 | 404, _) => {}
                    (status, answer) => return Err(ClientError::refused(status, &answer)),
                }
                let image = source.image()?;
                let exec = json!({
                    "kind": "blackbox",
                    "image": image.name,
                    "digest": image.digest,
                });
                let body = json!({ "exec": exec });
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
                            ("IMAGE", |f| text(&f["exec"]["image"])),
                            ("MEMORY MIB", |f| text(&f["limits"]["memory"])),
                            ("TIMEOUT MS", |f| text(&f["limits"]["timeout"])),
                            ("PROBLEM", |f| text(&f["problem"])),
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
