//! Listening sockets in the network of a sandbox: there a tool finds whoever runs it, and nobody else.

use crate::Sandbox;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::{
    ffi::{OsStr, OsString},
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    net,
    os::{fd::OwnedFd, unix},
};
use tokio::{
    io::Interest,
    net::{TcpListener, UnixStream},
    process::Command,
};

/// What makes them before it becomes the tool: sockets belong to the network in which they are made.
const LISTEN: &str = include_str!("listen.py");

/// The most that there can be.
const MOST: usize = 32;

/// The listening sockets of a command, which it sends when it begins.
pub struct Listeners(UnixStream);

impl Sandbox<'_> {
    /// A command as of [`Self::command`] that can connect to these addresses (`ADDRESS:PORT`) of its own loopback
    /// interface, and whoever has the result answers there. The tool itself has none of the sockets.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn command_with_listeners<A: AsRef<OsStr>>(
        &self,
        addresses: &[String],
        program: impl IntoIterator<Item = A>,
    ) -> io::Result<(Command, Listeners)> {
        let (own, its) = unix::net::UnixStream::pair()?;
        own.set_nonblocking(true)?;
        let mut all: Vec<OsString> = ["python3", "-I", "-c", LISTEN].map(OsString::from).into();
        all.extend(addresses.iter().map(OsString::from));
        all.push("--".into());
        all.extend(program.into_iter().map(|part| part.as_ref().to_owned()));
        let mut command = self.command(all);
        command.stdin(OwnedFd::from(its));
        Ok((command, Listeners(UnixStream::from_std(own)?)))
    }
}

impl Listeners {
    /// Waits for the sockets, which are in the order of the addresses. Nothing else is taken from the command.
    ///
    /// # Errors
    /// The command has sent something else.
    pub async fn receive(self) -> io::Result<Vec<TcpListener>> {
        let receive = || -> io::Result<Vec<net::TcpListener>> {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let into = &mut [IoSliceMut::new(&mut byte)];
            recvmsg(&self.0, into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
            let mut listeners = Vec::new();
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    listeners.extend(descriptors.map(net::TcpListener::from));
                }
            }
            Ok(listeners)
        };
        let listeners = self.0.async_io(Interest::READABLE, receive).await?;
        let one = |listener: net::TcpListener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        listeners.into_iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ToolError, output};
    use std::path::Path;
    use tokio::io::AsyncWriteExt;

    fn sandbox(work: &Path) -> Sandbox<'_> {
        Sandbox { work, files: Vec::new(), most_file_bytes: 1 << 20 }
    }

    #[tokio::test]
    async fn a_command_finds_whoever_runs_it_and_nobody_else() {
        let directory = tempfile::tempdir().unwrap();
        let of_host = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let script = format!(
            r#"
import os, socket, stat, sys
for address in ("127.0.0.1", 443), ("127.0.0.2", 5000):
    with socket.create_connection(address) as connection:
        print(connection.recv(9).decode())
try:
    socket.create_connection(("127.0.0.1", {}))
except ConnectionRefusedError:
    print("refused")
print(repr(sys.stdin.read()))
def is_socket(descriptor):
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False
print([descriptor for descriptor in range(1024) if is_socket(descriptor)])
"#,
            of_host.local_addr().unwrap().port()
        );
        let addresses = ["127.0.0.1:443".to_owned(), "127.0.0.2:5000".to_owned()];
        let program = ["python3", "-c", &script];
        let (command, listeners) =
            sandbox(directory.path()).command_with_listeners(&addresses, program).unwrap();
        let answering = async {
            for (listener, word) in listeners.receive().await.unwrap().iter().zip(["one", "two"]) {
                let (mut client, _) = listener.accept().await.unwrap();
                client.write_all(word.as_bytes()).await.unwrap();
            }
        };
        let (said, ()) = tokio::join!(output(command, 4096), answering);
        assert_eq!(String::from_utf8(said.unwrap()).unwrap(), "one\ntwo\nrefused\n''\n[]\n");
    }

    #[tokio::test]
    async fn what_is_missing_is_said_without_the_help_of_python() {
        let directory = tempfile::tempdir().unwrap();
        for (address, program, part) in [
            ("127.0.0.1:5000", "no-such-tool", "no-such-tool: No such file"),
            ("192.0.2.1:5000", "true", "192.0.2.1:5000: Cannot assign"),
        ] {
            let sandbox = sandbox(directory.path());
            let (command, _listeners) =
                sandbox.command_with_listeners(&[address.to_owned()], [program]).unwrap();
            match output(command, 4096).await {
                Err(ToolError::Missing(error)) => {
                    assert!(error.to_string().contains(part), "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
