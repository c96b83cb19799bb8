//! Runs tools that read what nobody vouches for: images of strangers, layers of containers.
//!
//! The sandbox is bubblewrap's, with limits of memory and of the length of files.

mod filter;
mod listeners;
#[cfg(test)]
#[path = "../../../scripts/skip.rs"]
mod skip;
mod tool;

pub use listeners::Listeners;
pub use tool::{ToolError, lines, output};

use std::{
    ffi::OsStr,
    fs::File,
    io,
    path::{Path, PathBuf},
    process::Stdio,
};
use tokio::process::Command;

/// What a process may have of private memory, in bytes.
pub const MOST_MEMORY_BYTES: u64 = 1 << 30;
/// What Linux adds to the thousandths that it has of memory that is short, when it chooses whom to kill: the most. What
/// it makes can be made again.
const OOM_SCORE_ADJUSTMENT: &str = "1000";

/// An environment with little in it: `/usr`, a directory to work in, and no processes but its own. Its network is a
/// loopback interface of its own.
pub struct Sandbox<'a> {
    /// The only place where something may be written.
    pub work: &'a Path,
    /// Files and directories of the host, and where they are to be found.
    pub files: Vec<(PathBuf, &'static str)>,
    /// No file may become longer, in bytes.
    pub most_file_bytes: u64,
}

impl Sandbox<'_> {
    /// A command in it, which ends with the daemon. It is user 0 of a user namespace, and nobody but the daemon's
    /// user outside of it.
    pub fn command<A: AsRef<OsStr>>(&self, program: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.limited();
        command.args(["--unshare-user", "--uid", "0", "--gid", "0", "--cap-drop", "ALL"]);
        // For directories that an image has closed, and to listen at any port of its own loopback interface.
        command.args(["--cap-add", "CAP_DAC_OVERRIDE", "--cap-add", "CAP_NET_BIND_SERVICE"]);
        self.confine(&mut command, program);
        command.stdin(Stdio::null());
        command
    }

    /// A command in it that sees the host's files as they are: whoever owns them and whoever may read them, with the
    /// attributes in which overlayfs keeps what a layer hides. Only root can run it, and what it calls is limited to what
    /// reads files and writes one.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn reader<A: AsRef<OsStr>>(
        &self,
        program: impl IntoIterator<Item = A>,
    ) -> io::Result<Command> {
        let mut command = self.limited();
        // The attributes are only for those who may do almost everything. That is why there is a filter.
        command.args(["--cap-drop", "ALL"]);
        command.args(["--cap-add", "CAP_DAC_READ_SEARCH", "--cap-add", "CAP_SYS_ADMIN"]);
        // bubblewrap reads the filter there, and closes it.
        command.args(["--seccomp", "0"]);
        self.confine(&mut command, program);
        command.stdin(File::from(filter::file()?));
        Ok(command)
    }

    fn limited(&self) -> Command {
        let mut command = Command::new("nice");
        command.args(["-n", "10", "choom", "-n", OOM_SCORE_ADJUSTMENT, "--"]);
        command.args(["prlimit", "--core=0", "--nofile=1024"]);
        command.arg(format!("--data={MOST_MEMORY_BYTES}"));
        command.arg(format!("--fsize={}", self.most_file_bytes));
        command.args(["bwrap", "--die-with-parent", "--new-session"]);
        command
    }

    fn confine<A: AsRef<OsStr>>(
        &self,
        command: &mut Command,
        program: impl IntoIterator<Item = A>,
    ) {
        command.args(["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]);
        command.args(["--ro-bind", "/usr", "/usr", "--dev", "/dev", "--tmpfs", "/tmp"]);
        for name in ["bin", "lib", "lib64"] {
            command.args(["--symlink", &format!("usr/{name}"), &format!("/{name}")]);
        }
        for (file, place) in &self.files {
            command.arg("--ro-bind").arg(file).arg(place);
        }
        command.arg("--bind").arg(self.work).args(["/work", "--chdir", "/work"]);
        command.args(program);
        command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").env("HOME", "/work");
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("TMPDIR", "/work");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
    }
}
