//! `squeezy-requests` keeps the memory requests of frozen pods at what they occupy.
//!
//! The servers of the VMs on its node tell it, over a socket, when a pod is frozen and before it runs again. It alone has
//! rights in the cluster: to read pods, and to change their resources.

mod api;
mod change;
mod cluster;
mod places;
mod pod;
mod quantity;
mod serve;

use api::Api;
use clap::Parser;
use squeezy_requests::SOCKET;
use std::{path::PathBuf, process::ExitCode};
use tracing::level_filters::LevelFilter;

/// Where Kubernetes puts what a pod's service account has.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Keeps the memory requests of frozen pods at what they occupy.
///
/// A pod with the annotations dev.squeezy/freeze-after and `dev.squeezy/frozen-request: occupied` has its memory limits
/// as requests while it runs, and what it occupies while it is frozen. Runs once on each node that has the runtime, as
/// squeezy-requests.yaml of the release starts it.
#[derive(Parser)]
#[command(name = "squeezy-requests", version)]
struct Arguments {
    /// The API server; in a pod of Kubernetes, the cluster's own.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The token that the API server knows it by, read again for each request.
    #[arg(long, value_name = "FILE", default_value_os_t = PathBuf::from(ACCOUNT).join("token"))]
    token_file: PathBuf,
    /// The certificate that vouches for the API server, in PEM, read again for each request.
    #[arg(long, value_name = "FILE", default_value_os_t = PathBuf::from(ACCOUNT).join("ca.crt"))]
    certificate_file: PathBuf,
    /// Where servers of VMs find it.
    #[arg(long, value_name = "FILE", default_value = SOCKET)]
    socket: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::INFO)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .init();
    let api = Api::new(arguments.server, arguments.token_file, arguments.certificate_file);
    let failed = match api {
        Ok(api) => match serve::bind(&arguments.socket) {
            Ok(listener) => serve::serve(&listener, &api).to_string(),
            Err(error) => format!("{}: {error}", arguments.socket.display()),
        },
        Err(error) => error,
    };
    tracing::error!("{failed}");
    ExitCode::FAILURE
}
