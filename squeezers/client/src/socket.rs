//! Finding a squeezer's socket, and connecting to it. The process owns the place where it looks.

use crate::{Deadline, Error, Process, Result, error::printable};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2},
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
        sockopt::{Timeout, set_socket_timeout},
    },
};
use std::{
    ffi::OsString,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
};

/// The variable that says where a squeezer listens.
const VARIABLE: &str = "SQUEEZER_SOCKET";

/// A socket file that has been found. It stays the same whatever becomes of its name.
pub(crate) struct SocketFile {
    file: OwnedFd,
    /// Its path, for people.
    pub(crate) path: String,
}

impl SocketFile {
    /// The socket file of this path, as the caller sees it.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        let file = openat2(CWD, path, LOOK_UP, Mode::empty(), ResolveFlags::empty());
        Self::checked(path, file)
    }

    /// The socket file of this path, as the process sees it.
    fn within(process: &Process, root: &OwnedFd, path: &Path) -> Result<Self> {
        // Absolute links and `..` must not lead out of the process's root, into the caller's.
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let file = openat2(root, path, LOOK_UP, Mode::empty(), resolve);
        if process.has_ended() {
            return Err(Error::NoProcess(process.pid()));
        }
        Self::checked(path, file)
    }

    fn checked(path: &Path, file: rustix::io::Result<OwnedFd>) -> Result<Self> {
        let path = printable(&path.to_string_lossy());
        let failed = |error: Errno| Error::Socket {
            path: path.clone(),
            reason: match error {
                Errno::NOENT | Errno::NOTDIR => "no such file".to_owned(),
                error => error.to_string(),
            },
        };
        let file = file.map_err(failed)?;
        let kind = FileType::from_raw_mode(fstat(&file).map_err(failed)?.st_mode);
        if kind != FileType::Socket {
            return Err(Error::Socket { path, reason: "not a socket".to_owned() });
        }
        Ok(Self { file, path })
    }

    /// Connects to whoever listens there.
    pub(crate) fn connect(&self, deadline: Deadline) -> Result<UnixStream> {
        let what = "connecting to the squeezer";
        let system = |error| Error::system(what, error);
        // By the file that was checked; also, the path of a socket is at most 107 bytes long.
        let name = format!("/proc/self/fd/{}", self.file.as_fd().as_raw_fd());
        let address = SocketAddrUnix::new(&name).map_err(system)?;
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(system)?;
        // A full queue of a listener makes connect(2) wait.
        set_socket_timeout(&socket, Timeout::Send, Some(deadline.remaining(what)?))
            .map_err(system)?;
        connect(&socket, &address).map_err(|error| match error {
            Errno::AGAIN => Error::Deadline(what),
            Errno::CONNREFUSED => Error::Socket {
                path: self.path.clone(),
                reason: "nothing listens there any more".to_owned(),
            },
            error => Error::system(format!("connecting to {}", self.path), error),
        })?;
        Ok(UnixStream::from(socket))
    }
}

/// Where the squeezer of a process may listen, the likeliest first: each a socket file, or why not.
pub(crate) fn of(process: &Process) -> Result<Vec<Result<SocketFile>>> {
    let paths = paths(process.variable(VARIABLE)?, process.own_pid()?);
    let root = process.root()?;
    Ok(paths.iter().map(|path| SocketFile::within(process, &root, path)).collect())
}

/// A process whose parent listens at the path in the variable listens at that of its number.
fn paths(variable: Option<OsString>, own_pid: u32) -> Vec<PathBuf> {
    let own = PathBuf::from(format!("/tmp/squeezer-{own_pid}.sock"));
    let named = variable.map(PathBuf::from).filter(|path| path.is_absolute());
    named.into_iter().chain([own]).collect()
}

const LOOK_UP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::{self, File},
        os::unix::{fs::symlink, net::UnixListener},
        time::Duration,
    };

    fn reason(result: Result<SocketFile>) -> String {
        match result {
            Err(Error::Socket { reason, .. }) => reason,
            Err(error) => panic!("{error}"),
            Ok(socket) => panic!("{} was taken", socket.path),
        }
    }

    #[test]
    fn only_a_socket_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        File::create(path("file")).unwrap();
        let _listener = UnixListener::bind(path("socket")).unwrap();
        symlink(path("socket"), path("link")).unwrap();
        SocketFile::at(&path("socket")).unwrap();
        assert_eq!(reason(SocketFile::at(&path("file"))), "not a socket");
        assert_eq!(reason(SocketFile::at(&path("link"))), "not a socket");
        assert_eq!(reason(SocketFile::at(&path("nothing"))), "no such file");
        assert_eq!(reason(SocketFile::at(&path("file/x"))), "no such file");
    }

    #[test]
    fn a_long_path_and_a_listener_that_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(200));
        fs::create_dir(&deep).unwrap();
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        fs::rename(directory.path().join("s"), deep.join("s")).unwrap();
        let deadline = Deadline::after(Duration::from_secs(60));
        let socket = SocketFile::at(&deep.join("s")).unwrap();
        socket.connect(deadline).unwrap();
        drop(listener);
        let error = socket.connect(deadline).unwrap_err().to_string();
        assert!(error.ends_with("nothing listens there any more"), "{error}");
    }

    #[test]
    fn a_full_queue_is_waited_for_until_the_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let socket = SocketFile::at(&path).unwrap();
        let mut queue = Vec::new();
        let error = loop {
            match socket.connect(Deadline::after(Duration::from_millis(20))) {
                Ok(stream) => queue.push(stream),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Deadline(_)), "after {}: {error}", queue.len());
    }

    #[test]
    fn links_stay_within_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let outside = directory.path().join("outside");
        let _listener = UnixListener::bind(&outside).unwrap();
        let inside = directory.path().join("root");
        fs::create_dir(&inside).unwrap();
        symlink(directory.path(), inside.join("absolute")).unwrap();
        symlink("../..", inside.join("upwards")).unwrap();
        let root = rustix::fs::open(&inside, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let root = root.unwrap();
        let process = Process::open(std::process::id()).unwrap();
        for path in ["/absolute/outside", "/upwards/outside", "/../outside"] {
            let found = SocketFile::within(&process, &root, Path::new(path));
            assert_eq!(reason(found), "no such file", "{path}");
        }
        let _listener = UnixListener::bind(inside.join("s")).unwrap();
        SocketFile::within(&process, &root, Path::new("/../s")).unwrap();
    }

    #[test]
    fn both_paths_are_tried_and_no_relative_one() {
        let own = "/tmp/squeezer-7.sock";
        assert_eq!(paths(None, 7), [Path::new(own)]);
        assert_eq!(paths(Some("/run/s".into()), 7), [Path::new("/run/s"), Path::new(own)]);
        assert_eq!(paths(Some("run/s".into()), 7), [Path::new(own)]);
    }
}
