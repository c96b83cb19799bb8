//! `squeezy doctor`: what `squeezy serve` will find on this machine.

mod drives;
mod files;
mod finding;
mod machine;
mod needed;
mod pulls;

use crate::{
    output::print,
    serve::{self, ServeError},
};
use clap::Args as ClapArgs;
use finding::Verdict;
use squeezy_vmm::Artifacts;
use std::{path::PathBuf, process::ExitCode};

/// Says what works on this machine, what will be slow, and what to do about it.
///
/// Looks at the processor's virtualization, QEMU, memory and huge pages, limits, the state directory and its disk, the
/// key, the certificate, what a collector and registries are shown, the log file, kernel, images and the programs that
/// pull them or pack large code, for a daemon with this configuration. It changes nothing, and takes a few seconds at
/// most. The exit status is 1 if something keeps the daemon from serving.
///
/// Limits, and what can be read and written, are those of whoever runs it. For the service, run it as its user:
/// `runuser -u squeezy -- squeezy doctor --config /etc/squeezy/squeezy.toml`.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// The configuration of the daemon; without it all keys have their defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The directory of kernels and images; the default is $SQUEEZY_BUILD, else `build` of the checkout, else
    /// /usr/lib/squeezy.
    #[arg(long, value_name = "DIRECTORY")]
    build: Option<PathBuf>,

    /// Prints the findings as JSON.
    #[arg(long)]
    json: bool,
}

/// Examines the machine.
pub async fn main(args: Args) -> Result<ExitCode, ServeError> {
    let config = serve::read(args.config.as_deref())?;
    let tools = [drives::examine().await, pulls::examine(&config).await];
    let build = args.build;
    let examined = tokio::task::spawn_blocking(move || {
        let mut findings = machine::examine(&config);
        findings.extend(files::examine(&config, Artifacts::find(build.as_deref())));
        findings.extend(needed::examine(&config));
        findings
    });
    let mut findings = examined.await.map_err(|error| ServeError::Internal(error.to_string()))?;
    findings.extend(tools);
    if args.json {
        print(serde_json::json!(findings));
    } else {
        finding::lines(&findings).iter().for_each(print);
    }
    let is_wrong = findings.iter().any(|finding| finding.verdict == Verdict::Wrong);
    Ok(if is_wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
