//! `squeezy function`.

use super::{
    ClientError, Connection,
    image::image_name,
    segment, show,
    table::{print_list, text},
};
use clap::{Args, Subcommand};
use serde_json::json;
use std::{path::PathBuf, process::ExitCode};

/// Makes, lists and removes functions of a running daemon.
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
        /// A directory with a function.toml, an OCI image, or the name of an image.
        ///
        /// The image of a directory with a function.toml has to be built already, unless its
        /// function.toml makes it from an OCI image: that, an archive (as `docker save` makes it)
        /// and an OCI layout directory are turned into an image first, which takes root and a
        /// daemon on this machine.
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

impl Functions {
    /// Does what is asked.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        let one = |name: &str| Ok::<_, ClientError>(format!("/actions/{}", segment(name)?));
        match self.what {
            FunctionCommand::Create { function, name, overwrite } => {
                let image = image_name(&function)?;
                let path = one(name.as_deref().unwrap_or(&image))?;
                let body = json!({ "exec": { "kind": "blackbox", "image": image } });
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
