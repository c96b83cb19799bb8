//! The system calls that an instance may make.
//!
//! Calls that are not listed fail as in a kernel without them (ENOSYS). Programs expect that: those that try
//! io_uring, aio or clone3 have a fallback.

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, sock_filter,
};
use squeezy_protocol::{Instruction, Seccomp, SystemCallFilter};
use std::io;

/// What containers with the capabilities that an instance may have may call by default in Docker and containerd, except: aio (`io_setup`
/// and related calls), whose memory is charged to the instance, but whose requests count against a limit of
/// the whole machine; `memfd_secret`, which splits huge pages of the kernel's direct map; and NUMA policies,
/// since there is one node. In order of their numbers.
#[rustfmt::skip]
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_read, libc::SYS_write, libc::SYS_open, libc::SYS_close, libc::SYS_stat, libc::SYS_fstat,
    libc::SYS_lstat, libc::SYS_poll, libc::SYS_lseek, libc::SYS_mmap, libc::SYS_mprotect,
    libc::SYS_munmap, libc::SYS_brk, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn, libc::SYS_ioctl, libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_readv,
    libc::SYS_writev, libc::SYS_access, libc::SYS_pipe, libc::SYS_select, libc::SYS_sched_yield,
    libc::SYS_mremap, libc::SYS_msync, libc::SYS_mincore, libc::SYS_madvise, libc::SYS_shmget,
    libc::SYS_shmat, libc::SYS_shmctl, libc::SYS_dup, libc::SYS_dup2, libc::SYS_pause,
    libc::SYS_nanosleep, libc::SYS_getitimer, libc::SYS_alarm, libc::SYS_setitimer, libc::SYS_getpid,
    libc::SYS_sendfile, libc::SYS_connect, libc::SYS_accept, libc::SYS_sendto, libc::SYS_recvfrom,
    libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_shutdown, libc::SYS_bind, libc::SYS_listen,
    libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_socketpair, libc::SYS_setsockopt,
    libc::SYS_getsockopt, libc::SYS_fork, libc::SYS_vfork, libc::SYS_execve, libc::SYS_exit,
    libc::SYS_wait4, libc::SYS_kill, libc::SYS_uname, libc::SYS_semget, libc::SYS_semop,
    libc::SYS_semctl, libc::SYS_shmdt, libc::SYS_msgget, libc::SYS_msgsnd, libc::SYS_msgrcv,
    libc::SYS_msgctl, libc::SYS_fcntl, libc::SYS_flock, libc::SYS_fsync, libc::SYS_fdatasync,
    libc::SYS_truncate, libc::SYS_ftruncate, libc::SYS_getdents, libc::SYS_getcwd, libc::SYS_chdir,
    libc::SYS_fchdir, libc::SYS_rename, libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_creat,
    libc::SYS_link, libc::SYS_unlink, libc::SYS_symlink, libc::SYS_readlink, libc::SYS_chmod,
    libc::SYS_fchmod, libc::SYS_chown, libc::SYS_fchown, libc::SYS_lchown, libc::SYS_umask,
    libc::SYS_gettimeofday, libc::SYS_getrlimit, libc::SYS_getrusage, libc::SYS_sysinfo,
    libc::SYS_times, libc::SYS_ptrace, libc::SYS_getuid, libc::SYS_getgid, libc::SYS_setuid,
    libc::SYS_setgid, libc::SYS_geteuid, libc::SYS_getegid, libc::SYS_setpgid, libc::SYS_getppid,
    libc::SYS_getpgrp, libc::SYS_setsid, libc::SYS_setreuid, libc::SYS_setregid,
    libc::SYS_getgroups, libc::SYS_setgroups, libc::SYS_setresuid, libc::SYS_getresuid,
    libc::SYS_setresgid, libc::SYS_getresgid, libc::SYS_getpgid, libc::SYS_setfsuid,
    libc::SYS_setfsgid, libc::SYS_getsid, libc::SYS_capget, libc::SYS_capset,
    libc::SYS_rt_sigpending, libc::SYS_rt_sigtimedwait, libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_sigsuspend, libc::SYS_sigaltstack, libc::SYS_utime, libc::SYS_mknod,
    libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_getpriority, libc::SYS_setpriority,
    libc::SYS_sched_setparam, libc::SYS_sched_getparam, libc::SYS_sched_setscheduler,
    libc::SYS_sched_getscheduler, libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min, libc::SYS_sched_rr_get_interval, libc::SYS_mlock,
    libc::SYS_munlock, libc::SYS_mlockall, libc::SYS_munlockall, libc::SYS_modify_ldt,
    libc::SYS_prctl, libc::SYS_arch_prctl, libc::SYS_adjtimex, libc::SYS_setrlimit, libc::SYS_chroot, libc::SYS_sync,
    libc::SYS_gettid, libc::SYS_readahead, libc::SYS_setxattr, libc::SYS_lsetxattr,
    libc::SYS_fsetxattr, libc::SYS_getxattr, libc::SYS_lgetxattr, libc::SYS_fgetxattr,
    libc::SYS_listxattr, libc::SYS_llistxattr, libc::SYS_flistxattr, libc::SYS_removexattr,
    libc::SYS_lremovexattr, libc::SYS_fremovexattr, libc::SYS_tkill, libc::SYS_time,
    libc::SYS_futex, libc::SYS_sched_setaffinity, libc::SYS_sched_getaffinity,
    libc::SYS_set_thread_area, libc::SYS_get_thread_area, libc::SYS_epoll_create,
    libc::SYS_remap_file_pages, libc::SYS_getdents64, libc::SYS_set_tid_address,
    libc::SYS_restart_syscall, libc::SYS_semtimedop, libc::SYS_fadvise64, libc::SYS_timer_create,
    libc::SYS_timer_settime, libc::SYS_timer_gettime, libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete, libc::SYS_clock_gettime, libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep, libc::SYS_exit_group, libc::SYS_epoll_wait, libc::SYS_epoll_ctl,
    libc::SYS_tgkill, libc::SYS_utimes, libc::SYS_mq_open, libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend, libc::SYS_mq_timedreceive, libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr, libc::SYS_waitid, libc::SYS_ioprio_set, libc::SYS_ioprio_get,
    libc::SYS_inotify_init, libc::SYS_inotify_add_watch, libc::SYS_inotify_rm_watch,
    libc::SYS_openat, libc::SYS_mkdirat, libc::SYS_mknodat, libc::SYS_fchownat,
    libc::SYS_futimesat, libc::SYS_newfstatat, libc::SYS_unlinkat, libc::SYS_renameat,
    libc::SYS_linkat, libc::SYS_symlinkat, libc::SYS_readlinkat, libc::SYS_fchmodat,
    libc::SYS_faccessat, libc::SYS_pselect6, libc::SYS_ppoll, libc::SYS_set_robust_list,
    libc::SYS_get_robust_list, libc::SYS_splice, libc::SYS_tee, libc::SYS_sync_file_range,
    libc::SYS_vmsplice, libc::SYS_utimensat, libc::SYS_epoll_pwait, libc::SYS_signalfd,
    libc::SYS_timerfd_create, libc::SYS_eventfd, libc::SYS_fallocate, libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime, libc::SYS_accept4, libc::SYS_signalfd4, libc::SYS_eventfd2,
    libc::SYS_epoll_create1, libc::SYS_dup3, libc::SYS_pipe2, libc::SYS_inotify_init1,
    libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_rt_tgsigqueueinfo, libc::SYS_recvmmsg,
    libc::SYS_prlimit64, libc::SYS_name_to_handle_at, libc::SYS_clock_adjtime, libc::SYS_syncfs,
    libc::SYS_sendmmsg, libc::SYS_getcpu, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev,
    libc::SYS_sched_setattr, libc::SYS_sched_getattr, libc::SYS_renameat2, libc::SYS_seccomp,
    libc::SYS_getrandom, libc::SYS_memfd_create, libc::SYS_execveat, libc::SYS_membarrier,
    libc::SYS_mlock2, libc::SYS_copy_file_range, libc::SYS_preadv2, libc::SYS_pwritev2,
    libc::SYS_pkey_mprotect, libc::SYS_pkey_alloc, libc::SYS_pkey_free, libc::SYS_statx,
    libc::SYS_rseq, libc::SYS_pidfd_send_signal, libc::SYS_pidfd_open, libc::SYS_close_range,
    libc::SYS_openat2, libc::SYS_pidfd_getfd, libc::SYS_faccessat2, libc::SYS_process_madvise,
    libc::SYS_epoll_pwait2, libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self, libc::SYS_process_mrelease, libc::SYS_futex_waitv,
    CACHESTAT, libc::SYS_fchmodat2, MAP_SHADOW_STACK, FUTEX_WAKE, FUTEX_WAIT, FUTEX_REQUEUE,
    libc::SYS_mseal,
];

/// From `asm/unistd_64.h`; libc does not have them yet.
const CACHESTAT: libc::c_long = 451;
const MAP_SHADOW_STACK: libc::c_long = 453;
const FUTEX_WAKE: libc::c_long = 454;
const FUTEX_WAIT: libc::c_long = 455;
const FUTEX_REQUEUE: libc::c_long = 456;

/// Flags of clone(2) that create namespaces. clone3(2) takes them in memory, which a filter cannot read.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;
/// Socket families that are confined to the instance's network namespace. Of netlink, only the protocol with
/// which a program reads its addresses is allowed.
const FAMILIES: [libc::c_int; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
/// From `linux/in6.h`: creates flow labels, of which the whole machine has 4,096.
const IPV6_FLOWLABEL_MGR: libc::c_int = 32;
/// Personalities that only change what uname(2) tells the program, and the query for the current one.
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x20000, 0x20008, 0xffff_ffff];

/// Builds the filters of an instance, to be installed later, in this order; building them takes memory.
pub fn filters(profile: Seccomp, more: &[SystemCallFilter]) -> io::Result<Vec<BpfProgram>> {
    let own = match profile {
        Seccomp::Default => Some(default_filter().map_err(io::Error::other)?),
        Seccomp::Unconfined => None,
    };
    let more = more.iter().map(|filter| filter.instructions().map(instruction).collect());
    Ok(own.into_iter().chain(more).collect())
}

fn instruction(instruction: Instruction) -> sock_filter {
    let Instruction { code, jump_true, jump_false, operand } = instruction;
    sock_filter { code, jt: jump_true, jf: jump_false, k: operand }
}

/// Confines this process and its descendants. It has CAP_SYS_ADMIN in its user namespace, or can gain no privileges any
/// more; seccompiler itself only knows the latter.
pub fn install(filter: &BpfProgram) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    // SAFETY: both types of instructions have the kernel's layout; it reads as many as there are, and writes none.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn default_filter() -> Result<BpfProgram, BackendError> {
    let compare = |argument, operator, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    };
    let equal = |argument, value| compare(argument, SeccompCmpOp::Eq, value);
    let other =
        |argument, value| SeccompRule::new(vec![compare(argument, SeccompCmpOp::Ne, value)?]);
    let mut rules: std::collections::BTreeMap<_, Vec<SeccompRule>> =
        ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    let without_namespaces =
        SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(NAMESPACES), 0)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![without_namespaces])?]);
    let mut sockets = vec![SeccompRule::new(vec![
        equal(0, libc::AF_NETLINK as u64)?,
        equal(2, libc::NETLINK_ROUTE as u64)?,
    ])?];
    for family in FAMILIES {
        sockets.push(SeccompRule::new(vec![equal(0, family as u64)?])?);
    }
    rules.insert(libc::SYS_socket, sockets);
    let no_flow_labels =
        vec![other(1, libc::IPPROTO_IPV6 as u64)?, other(2, IPV6_FLOWLABEL_MGR as u64)?];
    rules.insert(libc::SYS_setsockopt, no_flow_labels);
    let personalities = PERSONALITIES
        .into_iter()
        .map(|personality| SeccompRule::new(vec![equal(0, personality)?]))
        .collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_personality, personalities);
    SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::ENOSYS as u32),
        SeccompAction::Allow,
        TargetArch::x86_64,
    )?
    .try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `action` in a child confined by the default filter, and returns its result.
    fn confined(action: impl FnOnce() -> i32) -> i32 {
        let filter = default_filter().unwrap();
        // SAFETY: the child only makes system calls.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                libc::_exit(if install(&filter).is_ok() { action() } else { 99 });
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert!(libc::WIFEXITED(status), "{status:#x}");
            libc::WEXITSTATUS(status)
        }
    }

    fn errno() -> i32 {
        io::Error::last_os_error().raw_os_error().unwrap_or(0)
    }

    #[test]
    fn every_call_is_listed_once() {
        assert!(ALLOWED.windows(2).all(|pair| pair[0] < pair[1]), "not in order");
    }

    #[test]
    fn what_is_not_listed_is_not_there() {
        for call in [
            libc::SYS_mount,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_clone3,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_io_uring_setup,
            libc::SYS_io_setup,
            libc::SYS_keyctl,
            libc::SYS_syslog,
            libc::SYS_kexec_load,
            libc::SYS_open_by_handle_at,
            libc::SYS_pivot_root,
            libc::SYS_memfd_secret,
            // A call of the x32 ABI, and a number that no kernel has.
            0x4000_0000 | libc::SYS_getpid,
            4096,
        ] {
            let answer = confined(|| {
                // SAFETY: with only zeros as arguments, none of these does anything.
                if unsafe { libc::syscall(call, 0, 0, 0, 0, 0) } < 0 { errno() } else { 0 }
            });
            assert_eq!(answer, libc::ENOSYS, "call {call}");
        }
    }

    #[test]
    fn namespaces_and_sockets_are_told_by_their_arguments() {
        let clone = |flags: i32| {
            confined(|| {
                // SAFETY: like a fork; the child exits at once.
                match unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0) } {
                    -1 => errno(),
                    // SAFETY: there is nothing to clean up.
                    0 => unsafe { libc::_exit(0) },
                    _ => 0,
                }
            })
        };
        assert_eq!(clone(0), 0);
        for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNET, libc::CLONE_NEWPID | libc::CLONE_FS] {
            assert_eq!(clone(flag), libc::ENOSYS, "{flag:#x}");
        }
        for (family, protocol, answer) in [
            (libc::AF_UNIX, 0, 0),
            (libc::AF_INET, 0, 0),
            (libc::AF_NETLINK, libc::NETLINK_ROUTE, 0),
            (libc::AF_NETLINK, libc::NETLINK_USERSOCK, libc::ENOSYS),
            (libc::AF_VSOCK, 0, libc::ENOSYS),
            (libc::AF_PACKET, 0, libc::ENOSYS),
            (libc::AF_ALG, 0, libc::ENOSYS),
        ] {
            // SAFETY: socket takes only numbers.
            let opened = || unsafe { libc::socket(family, libc::SOCK_DGRAM, protocol) };
            assert_eq!(confined(|| if opened() < 0 { errno() } else { 0 }), answer, "{family}");
        }
    }

    #[test]
    fn flow_labels_alone_of_all_options_of_sockets_are_not_there() {
        for (level, option, answer) in [
            (libc::IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, libc::ENOSYS),
            // The filter lets it pass, and fails because there is no such socket.
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, libc::EBADF),
            (libc::SOL_SOCKET, IPV6_FLOWLABEL_MGR, libc::EBADF),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY, libc::EBADF),
        ] {
            let set = || {
                // SAFETY: there is no value, and none is read without a socket.
                let result = unsafe { libc::setsockopt(-1, level, option, std::ptr::null(), 0) };
                if result < 0 { errno() } else { 0 }
            };
            assert_eq!(confined(set), answer, "{level} {option}");
        }
    }
}
