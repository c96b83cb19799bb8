//! A connection to a squeezer.

use crate::{
    Answer, Deadline, Error, Hello, Process, Request, Result,
    protocol::MOST_LINE_BYTES,
    socket::{self, SocketFile},
};
use std::{
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::Path,
};

/// A squeezer that has said hello.
#[derive(Debug)]
pub struct Squeezer {
    stream: UnixStream,
    peer: Peer,
    hello: Hello,
}

/// Who listens at the other end, as the kernel has noted it when the process began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process in the caller's PID namespace; 0 if it is not in there.
    pub pid: u32,
    /// The user.
    pub uid: u32,
}

impl Squeezer {
    /// Connects to the squeezer that listens at a path, whoever it is: see [`Squeezer::peer`].
    pub fn at(path: &Path, deadline: Deadline) -> Result<Self> {
        let path = path.to_owned();
        let socket = deadline.bound("looking for the socket", move || SocketFile::at(&path))?;
        let stream = socket.connect(deadline)?;
        let peer = peer(&stream)?;
        Self::greeted(stream, peer, deadline)
    }

    /// Connects to the squeezer in a process, which may have a root, PIDs and users of its own.
    pub fn of(process: &Process, deadline: Deadline) -> Result<Self> {
        let target = process.clone();
        let sockets = deadline.bound("looking for the squeezer", move || socket::of(&target))?;
        let mut tried = Vec::new();
        for socket in sockets {
            let reason = match socket.and_then(|socket| Self::checked(process, &socket, deadline)) {
                Ok(squeezer) => return Ok(squeezer),
                Err(reason @ (Error::Socket { .. } | Error::System { .. })) => reason.to_string(),
                Err(error) => return Err(error),
            };
            tried.push(reason);
        }
        Err(Error::NoSqueezer { pid: process.pid(), tried: tried.join("; ") })
    }

    fn checked(process: &Process, socket: &SocketFile, deadline: Deadline) -> Result<Self> {
        let stream = socket.connect(deadline)?;
        let peer = peer(&stream)?;
        if peer.pid != process.pid() {
            let reason = match peer.pid {
                0 => "a process of another PID namespace listens there".to_owned(),
                other => format!("process {other} listens there"),
            };
            return Err(Error::Socket { path: socket.path.clone(), reason });
        }
        // The one who listened with this number may have ended, and the number be taken again.
        if process.has_ended() {
            return Err(Error::NoProcess(process.pid()));
        }
        let squeezer = Self::greeted(stream, peer, deadline)?;
        let own_pid = process.own_pid()?;
        if squeezer.hello.pid != own_pid {
            return Err(Error::Protocol(format!(
                "it says to be process {}, and the process there is {own_pid}",
                squeezer.hello.pid
            )));
        }
        Ok(squeezer)
    }

    fn greeted(mut stream: UnixStream, peer: Peer, deadline: Deadline) -> Result<Self> {
        let line = read_line(&mut stream, deadline, "the squeezer's hello")?;
        let hello = Hello::parse(&line)?;
        Ok(Self { stream, peer, hello })
    }

    /// What it said of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Who it is.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Asks it to give memory back, and waits for its answer. After an error, connect anew.
    pub fn squeeze(&mut self, request: &Request, deadline: Deadline) -> Result<Answer> {
        if let Some(reason) = &self.hello.refused {
            return Err(Error::Squeezer(reason.clone()));
        }
        let what = "the squeezer's answer";
        self.stream
            .set_write_timeout(Some(deadline.remaining(what)?))
            .and_then(|()| self.stream.write_all(request.line().as_bytes()))
            .map_err(|error| failed(what, error))?;
        Answer::parse(&read_line(&mut self.stream, deadline, what)?)
    }
}

/// One line, without its newline.
fn read_line(stream: &mut UnixStream, deadline: Deadline, what: &'static str) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        // For each read anew: a squeezer that drips must not outlast the deadline.
        let read = stream
            .set_read_timeout(Some(deadline.remaining(what)?))
            .and_then(|()| stream.read(&mut chunk));
        let read = match read {
            Ok(0) => return Err(Error::Protocol(format!("{what} did not come: it hung up"))),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(what, error)),
        };
        line.extend_from_slice(&chunk[..read]);
        if let Some(end) = line.iter().position(|&byte| byte == b'\n') {
            if end + 1 < line.len() {
                return Err(Error::Protocol(format!("after {what} it says more than asked")));
            }
            line.pop();
            return Ok(line);
        }
        if line.len() >= MOST_LINE_BYTES {
            return Err(Error::Protocol(format!("{what} is longer than {MOST_LINE_BYTES} bytes")));
        }
    }
}

fn failed(what: &'static str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => Error::Deadline(what),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            Error::Protocol(format!("{what} did not come: it hung up"))
        }
        _ => Error::system(what, error),
    }
}

/// Not rustix's function for it, whose result has no place for process 0.
fn peer(stream: &UnixStream) -> Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes to `peer`, which is plain integers.
    let status = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut size,
        )
    };
    if status != 0 {
        return Err(Error::system("who listens at the socket", io::Error::last_os_error()));
    }
    Ok(Peer { pid: u32::try_from(peer.pid).unwrap_or(0), uid: peer.uid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::net::UnixListener, thread, time::Duration};

    const HELLO: &str = "{\"squeezer\":1,\"runtime\":\"v8\",\"runtime_version\":\"20\",\"collector\":null,\"pid\":7}\n";
    const ANSWER: &str = "{\"before_bytes\":9,\"after_bytes\":8,\"live_bytes\":7,\"advised_bytes\":6,\"pause_ns\":5,\"cpu_ns\":4,\"error\":null}\n";

    /// Connects to a peer that says `words`, waits for a line before each but the first, hangs up
    /// after the last if `hang_up`, and is asked once.
    fn ask(words: Vec<Vec<u8>>, hang_up: bool, limit: Duration) -> Result<Answer> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let peer = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for (number, word) in words.iter().enumerate() {
                let mut byte = [0];
                while number > 0 && byte[0] != b'\n' {
                    if stream.read(&mut byte).unwrap_or(0) == 0 {
                        return;
                    }
                }
                if stream.write_all(word).is_err() {
                    return;
                }
            }
            let _ = if hang_up { Ok(0) } else { stream.read(&mut [0; 4096]) };
            let _ = if hang_up { Ok(0) } else { stream.read(&mut [0; 4096]) };
        });
        let deadline = Deadline::after(limit);
        let result = Squeezer::at(&path, deadline).and_then(|mut squeezer| {
            assert_eq!(squeezer.peer().pid, std::process::id());
            squeezer.squeeze(&Request::default(), deadline)
        });
        // Where the limit was over before it had connected, the peer still waits for somebody.
        let _ = UnixStream::connect(&path);
        peer.join().unwrap();
        result
    }

    fn rejected(words: &[&str]) -> String {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        ask(words, true, Duration::from_secs(60)).unwrap_err().to_string()
    }

    #[test]
    fn a_conversation() {
        let words = vec![HELLO.as_bytes().to_vec(), ANSWER.as_bytes().to_vec()];
        let answer = ask(words, true, Duration::from_secs(60)).unwrap();
        assert_eq!((answer.before_bytes, answer.cpu_ns), (9, 4));
    }

    #[test]
    fn a_squeezer_that_breaks_the_protocol() {
        assert!(rejected(&[""]).ends_with("the squeezer's hello did not come: it hung up"));
        assert!(rejected(&[HELLO]).contains("hung up"));
        assert!(rejected(&[HELLO, "{}\n"]).contains("missing field"));
        assert!(rejected(&[&format!("{HELLO}{ANSWER}")]).contains("more than asked"));
        assert!(rejected(&[HELLO, &ANSWER.repeat(2)]).contains("more than asked"));
        assert!(rejected(&[&"x".repeat(MOST_LINE_BYTES + 4096)]).contains("longer than"));
        assert!(rejected(&[HELLO, &" ".repeat(1 << 20)]).contains("longer than"));
        let refused = HELLO.replace('}', ",\"refused\":\"too old\"}");
        assert!(rejected(&[&refused, ANSWER]).ends_with("the squeezer says: too old"));
    }

    #[test]
    fn a_squeezer_that_does_not_answer_is_left_alone() {
        for words in
            [vec![], vec![b"{".to_vec()], vec![HELLO.into()], vec![HELLO.into(), "{".into()]]
        {
            let error = ask(words, false, Duration::from_millis(50)).unwrap_err();
            assert!(matches!(error, Error::Deadline(_)), "{error}");
        }
    }

    #[test]
    fn a_process_without_a_squeezer() {
        let process = Process::open(std::process::id()).unwrap();
        // Of an earlier process of this number.
        let _ = std::fs::remove_file(format!("/tmp/squeezer-{}.sock", process.pid()));
        let deadline = Deadline::after(Duration::from_secs(60));
        let error = Squeezer::of(&process, deadline).unwrap_err();
        assert!(matches!(error, Error::NoSqueezer { .. }), "{error}");
        assert!(error.to_string().contains(".sock: no such file"), "{error}");
    }
}
