//! Tells the service manager how far the daemon is, if there is one that wants to know: sd_notify(3).

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

/// It serves.
pub const READY: &str = "READY=1";

/// It ends.
pub const STOPPING: &str = "STOPPING=1";

/// Says it. A manager that does not listen is no reason to end.
pub fn notify(state: &str) {
    if let Some(socket) = env::var_os("NOTIFY_SOCKET") {
        let _ = send(&socket, state);
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        // Without a place in the file system.
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
