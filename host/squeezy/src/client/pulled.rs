//! `squeezy image`.

use super::{
    ClientError, Connection, show,
    table::{print_list, text},
};
use crate::output::complain;
use bytesize::ByteSize;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::{
    process::ExitCode,
    sync::mpsc::{RecvTimeoutError, channel},
    time::{Duration, Instant},
};

/// What takes longer is shown to be under way, and as often.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pulls, lists and removes images from registries.
#[derive(Clone, Debug, Args)]
pub struct Images {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    what: ImageCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum ImageCommand {
    /// Has the daemon pull an image and make it ready for functions.
    ///
    /// squeezy image pull registry.example/team/thing:1.2
    Pull {
        /// Which one: REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST.
        image: String,
    },
    /// Lists the images that have been pulled or are being pulled.
    List {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows one image, as JSON.
    Show {
        /// Its reference or its digest.
        image: String,
    },
    /// Removes an image that no function uses.
    Remove {
        /// Its reference or its digest.
        image: String,
    },
}

impl Images {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        let one = |image: &str| format!("/images/{}", encoded(image));
        match &self.what {
            ImageCommand::Pull { image } => {
                let body = json!({ "image": image });
                let pull = || self.connection.ask_patiently("POST", "/images", Some(&body));
                show(&while_pulling(&self.connection, pull)?);
            }
            ImageCommand::List { json } => {
                let list = self.connection.ask("GET", "/images", None)?;
                print_list(
                    &list,
                    *json,
                    &[
                        ("IMAGE", |i| text(&i["image"])),
                        ("TAG", |i| text(&i["tag"])),
                        ("DIGEST", |i| text(&i["digest"]).chars().take(19).collect()),
                        ("SIZE", |i| i["bytes"].as_u64().map_or_else(|| progress(i), size)),
                        ("FUNCTIONS", |i| {
                            let names = i["actions"].as_array().into_iter().flatten();
                            names.map(text).collect::<Vec<_>>().join(" ")
                        }),
                    ],
                );
            }
            ImageCommand::Show { image } => show(&self.connection.ask("GET", &one(image), None)?),
            ImageCommand::Remove { image } => {
                show(&self.connection.ask("DELETE", &one(image), None)?);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Does what may make the daemon pull an image, and says what it is doing if that takes a while.
pub fn while_pulling(
    connection: &Connection,
    work: impl FnOnce() -> Result<Value, ClientError>,
) -> Result<Value, ClientError> {
    std::thread::scope(|scope| {
        let (over, waiting) = channel::<()>();
        scope.spawn(move || {
            let begin = Instant::now();
            while waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let Ok(list) = connection.ask("GET", "/images", None) else { continue };
                let all = list.as_array().into_iter().flatten();
                for image in all.filter(|image| image["pulling"].is_object()) {
                    let (name, progress) = (text(&image["image"]), progress(image));
                    complain(format_args!(
                        "{name}: {progress}, {} s so far",
                        begin.elapsed().as_secs()
                    ));
                }
            }
        });
        let done = work();
        drop(over);
        done
    })
}

/// How far a pull is.
fn progress(image: &Value) -> String {
    let pulling = &image["pulling"];
    let step = text(&pulling["step"]);
    match (pulling["bytes"].as_u64(), pulling["of"].as_u64()) {
        (Some(bytes), Some(of)) if step == "fetching" => {
            format!("{step} {} of {}", size(bytes), size(of))
        }
        _ => step,
    }
}

fn size(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

/// A text as one segment of a path.
fn encoded(text: &str) -> String {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_.".contains(b);
    let plain = |b: u8| if is_plain(&b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    text.bytes().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_one_segment() {
        assert_eq!(encoded("r.example:5/a_b@c"), "r.example%3A5%2Fa_b%40c");
        assert_eq!(encoded("ä"), "%C3%A4");
    }

    #[test]
    fn how_far_a_pull_is() {
        let image = json!({ "pulling": { "step": "fetching", "bytes": 1048576, "of": 4194304 } });
        assert_eq!(progress(&image), "fetching 1.0 MiB of 4.0 MiB");
        let image = json!({ "pulling": { "step": "packing", "bytes": 1, "of": 1 } });
        assert_eq!(progress(&image), "packing");
    }
}
