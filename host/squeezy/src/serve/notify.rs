//! Notifies the service manager, if there is one, of the daemon's state: sd_notify(3).

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// The daemon is serving.
pub const READY: &str = "READY=1";

/// The daemon is shutting down.
pub const STOPPING: &str = "STOPPING=1";

/// Sends a state. Errors are ignored: the daemon can run without a service manager.
pub fn notify(state: &str) {
    if let Some(socket) = env::var_os("NOTIFY_SOCKET") {
        let _ = send(&socket, state);
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        // An abstract socket.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_told_wherever_it_listens() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("squeezy-test-{}", std::process::id());
        let hidden = SocketAddr::from_abstract_name(&name).unwrap();
        for (listener, socket) in [
            (UnixDatagram::bind(&path), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&hidden), format!("@{name}").into()),
        ] {
            let listener = listener.unwrap();
            send(&socket, READY).unwrap();
            let mut message = [0; 16];
            let length = listener.recv(&mut message).unwrap();
            assert_eq!(&message[..length], READY.as_bytes());
        }
        assert!(send(OsStr::new("/nowhere"), READY).is_err());
    }
}
