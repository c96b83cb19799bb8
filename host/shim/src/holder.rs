//! The process that stands for a pod on the host.
//!
//! Its id is the one of all tasks of the pod: containerd makes `/proc/ID/ns/net` of it, which must be the pod's
//! namespace and nobody else's. It runs this program again, waits on a pipe that only the server can write to, and so
//! ends with the server however that ends.

use crate::{
    error::{Error, Result},
    host::Holder,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::AsFd,
    path::Path,
    process::Stdio,
    time::Duration,
};
use tokio::{io::AsyncReadExt, process::Command, time::timeout};

/// The argument that makes this program a holder.
pub const HOLD: &str = "hold";
/// How long it may take until it is in its namespace.
const READY_LIMIT: Duration = Duration::from_secs(10);

/// Starts a holder, which is `program`, in this network namespace; in the server's without one.
///
/// # Errors
/// It cannot be started, or the namespace not be entered.
pub async fn start(program: &Path, network: Option<&Path>) -> Result<Holder> {
    let failed = |why: &dyn std::fmt::Display| {
        let place = network.unwrap_or(Path::new("/proc/self/ns/net")).display();
        Error::failed(format_args!("cannot hold the pod's network namespace {place}: {why}"))
    };
    let mut child = Command::new(program)
        .arg0("squeezy-pod")
        .arg(HOLD)
        .args(network)
        .current_dir("/")
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(&error))?;
    let pid = child.id().ok_or_else(|| failed(&"it has ended already"))?;
    let mut ready = [0];
    let mut stdout = child.stdout.take().expect("its output is piped");
    match timeout(READY_LIMIT, stdout.read_exact(&mut ready)).await {
        Ok(Ok(_)) => Ok(Holder { pid, keep: Box::new(child) }),
        Ok(Err(_)) => {
            let mut text = String::new();
            let stderr = child.stderr.take().expect("its errors are piped");
            let _ = timeout(READY_LIMIT, stderr.take(1024).read_to_string(&mut text)).await;
            Err(failed(&text.trim()))
        }
        Err(_) => Err(failed(&format_args!("it is not ready within {READY_LIMIT:?}"))),
    }
}

/// Is a holder: enters the namespace, says so, and waits until the server is gone.
///
/// # Errors
/// The namespace cannot be entered.
pub fn hold(network: Option<&Path>) -> io::Result<()> {
    if let Some(path) = network {
        let namespace = File::open(path)?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    }
    io::stdout().write_all(b"\n")?;
    io::stdout().flush()?;
    while io::stdin().read(&mut [0])? > 0 {}
    Ok(())
}
