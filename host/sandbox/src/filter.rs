//! The system calls of a tool that reads files and writes one.

use rustix::fs::{MemfdFlags, memfd_create};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use std::{
    fs::File,
    io::{self, Seek, Write},
    os::fd::OwnedFd,
};

/// Whatever is not listed fails as in a kernel without it. Nothing here mounts, enters namespaces, makes processes,
/// opens sockets, or changes a file but by writing to it. bubblewrap needs `execve` to begin, and `wait4` to end.
#[rustfmt::skip]
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_read, libc::SYS_write, libc::SYS_open, libc::SYS_close, libc::SYS_stat, libc::SYS_fstat,
    libc::SYS_lstat, libc::SYS_lseek, libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_munmap,
    libc::SYS_brk, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn,
    libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_readv, libc::SYS_writev, libc::SYS_access,
    libc::SYS_mremap, libc::SYS_madvise, libc::SYS_getpid, libc::SYS_execve, libc::SYS_exit,
    libc::SYS_fcntl, libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_ftruncate, libc::SYS_getcwd,
    libc::SYS_chdir, libc::SYS_readlink, libc::SYS_gettimeofday, libc::SYS_sysinfo, libc::SYS_getuid,
    libc::SYS_getgid, libc::SYS_geteuid, libc::SYS_getegid, libc::SYS_getppid, libc::SYS_gettid,
    libc::SYS_getxattr, libc::SYS_lgetxattr, libc::SYS_listxattr, libc::SYS_llistxattr,
    libc::SYS_futex, libc::SYS_getdents64, libc::SYS_set_tid_address, libc::SYS_fadvise64,
    libc::SYS_clock_gettime, libc::SYS_exit_group, libc::SYS_tgkill, libc::SYS_openat,
    libc::SYS_newfstatat, libc::SYS_readlinkat, libc::SYS_faccessat, libc::SYS_set_robust_list,
    libc::SYS_fallocate, libc::SYS_prlimit64, libc::SYS_getrandom, libc::SYS_statx, libc::SYS_rseq,
    libc::SYS_arch_prctl, libc::SYS_wait4, libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_uname,
];

/// The filter in a file, as bubblewrap reads it.
pub fn file() -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("filter", MemfdFlags::CLOEXEC)?);
    for instruction in program().map_err(io::Error::other)? {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&instruction.code.to_ne_bytes());
        bytes[2] = instruction.jt;
        bytes[3] = instruction.jf;
        bytes[4..].copy_from_slice(&instruction.k.to_ne_bytes());
        file.write_all(&bytes)?;
    }
    file.rewind()?;
    Ok(file.into())
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let allowed = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    SeccompFilter::new(
        allowed,
        SeccompAction::Errno(libc::ENOSYS as u32),
        SeccompAction::Allow,
        TargetArch::x86_64,
    )?
    .try_into()
}

#[cfg(test)]
mod tests {
    use crate::{Sandbox, ToolError, output, skip::skip};
    use std::{os::unix::fs::chown, path::Path};

    async fn run(layer: &Path, work: &Path, arguments: &[&str]) -> Result<String, String> {
        let files = vec![(layer.to_owned(), "/layer")];
        let sandbox = Sandbox { work, files, most_file_bytes: 1 << 20 };
        match output(sandbox.reader(arguments).unwrap(), 1 << 20).await {
            Ok(text) => Ok(String::from_utf8(text).unwrap()),
            Err(ToolError::Said(reason)) => Err(reason),
            Err(ToolError::Missing(error)) => panic!("{error}"),
            Err(ToolError::Refused(never)) => match never {},
        }
    }

    #[tokio::test]
    async fn a_reader_sees_files_as_they_are_and_changes_nothing_else() {
        if !rustix::process::geteuid().is_root() {
            return skip("only root can read others' files");
        }
        let (layer, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let closed = layer.path().join("closed");
        std::fs::create_dir(&closed).unwrap();
        std::fs::write(closed.join("file"), "text").unwrap();
        chown(&closed, Some(1234), Some(1234)).unwrap();
        std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .unwrap();
        let run = async |arguments: &[&str]| run(layer.path(), work.path(), arguments).await;
        assert_eq!(run(&["cat", "/layer/closed/file"]).await.unwrap(), "text");
        assert_eq!(run(&["stat", "-c", "%u", "/layer/closed"]).await.unwrap(), "1234\n");
        for forbidden in [
            &["mount", "-o", "remount,bind,rw", "/layer"][..],
            &["umount", "/layer"],
            &["unshare", "--user", "true"],
            &["nsenter", "--target", "1", "--mount", "true"],
            &["chmod", "777", "/work"],
            &["mkdir", "/work/directory"],
            &["sh", "-c", "true & wait"],
            &["python3", "-c", "import socket; socket.socket()"],
        ] {
            let said = run(forbidden).await;
            assert!(said.is_err(), "{forbidden:?}: {said:?}");
        }
    }
}
