//! The filter that keeps a VMM from getting past its judge.
//!
//! Every system call that says where data is to go waits for the judge, which makes it in the VMM's place. Whatever
//! else could reach somewhere is forbidden. So this holds even for a VMM that its guest has taken over. QEMU adds a
//! filter of its own (`-sandbox`); the kernel applies both, and lets only one of them have a listener.

use libc::{SOL_SOCKET, c_int, c_long};
use libc::{SYS_accept, SYS_accept4, SYS_bind, SYS_close, SYS_close_range, SYS_connect, SYS_dup2};
use libc::{
    SYS_dup3, SYS_listen, SYS_sendmmsg, SYS_sendmsg, SYS_sendto, SYS_setsockopt, SYS_socket,
};
use rustix::thread::set_no_new_privs;
use std::{
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

/// Calls that user networking does not need, and that would lead around the judge: waiting for connections; sending
/// where the address is in memory; io_uring, which no filter sees; and those that work on other processes, such as the
/// daemon, which belongs to the same user.
const FORBIDDEN: [c_long; 13] = [
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_sendmmsg,
    SYS_close_range,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
];

/// The options of sockets that user networking sets. Others could lift the judge's limit on what a connection sends, or
/// lead elsewhere: source routes, for one.
const OPTIONS: [(c_int, c_int); 5] = [
    (SOL_SOCKET, libc::SO_REUSEADDR),
    (SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
];

/// `AUDIT_ARCH_X86_64` of `linux/audit.h`: 64 bits, little endian, EM_X86_64.
const X86_64: u32 = 0xc000_003e;
/// The bit of a call's number that selects the ABI x32.
const X32: u32 = 0x4000_0000;
/// The bits of a socket's type that are no flags (`SOCK_TYPE_MASK`).
const TYPE_MASK: u32 = 0xf;

// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// The lower half of an argument.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const JUDGE: u32 = libc::SECCOMP_RET_USER_NOTIF;
const FORBID: u32 = libc::SECCOMP_RET_ERRNO | libc::EACCES as u32;

fn load(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, [0, 0])
}

/// Skips so many instructions if the loaded value is this one, and so many if it is not.
fn equal(value: u32, skip: [u8; 2]) -> libc::sock_filter {
    statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, skip)
}

fn end(action: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, action, [0, 0])
}

fn statement(code: u32, k: u32, [jt, jf]: [u8; 2]) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// If this argument is one of the VMM's own descriptors, `own`, otherwise `other`.
fn by_descriptor(
    index: u32,
    [monitor, channel]: [RawFd; 2],
    own: u32,
    other: u32,
) -> Vec<libc::sock_filter> {
    vec![
        load(argument(index)),
        equal(monitor as u32, [1, 0]),
        equal(channel as u32, [0, 1]),
        end(own),
        end(other),
    ]
}

/// Allows [`OPTIONS`], and all of them on the VMM's own descriptors.
fn options(own: [RawFd; 2]) -> Vec<libc::sock_filter> {
    let allowed = OPTIONS.into_iter().flat_map(|(level, option)| {
        [
            load(argument(1)),
            equal(level as u32, [0, 3]),
            load(argument(2)),
            equal(option as u32, [0, 1]),
            end(ALLOW),
        ]
    });
    allowed.chain(by_descriptor(0, own, ALLOW, FORBID)).collect()
}

/// The filter. The VMM's own two descriptors are connected sockets, with which it may do what it likes except replace
/// them: `sendmsg` is allowed on them alone.
fn program(own: [RawFd; 2]) -> Vec<libc::sock_filter> {
    let refuse_family = libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32;
    let mut calls: Vec<(c_long, Vec<libc::sock_filter>)> = vec![
        (SYS_connect, vec![end(JUDGE)]),
        // Without an address it goes where the socket is connected to.
        (
            SYS_sendto,
            vec![
                load(argument(4)),
                equal(0, [0, 3]),
                load(argument(4) + 4),
                equal(0, [0, 1]),
                end(ALLOW),
                end(JUDGE),
            ],
        ),
        (SYS_sendmsg, by_descriptor(0, own, ALLOW, FORBID)),
        (SYS_close, by_descriptor(0, own, FORBID, ALLOW)),
        (SYS_dup2, by_descriptor(1, own, FORBID, ALLOW)),
        (SYS_dup3, by_descriptor(1, own, FORBID, ALLOW)),
        (SYS_setsockopt, options(own)),
        // TCP, UDP and pings: not raw sockets, should the daemon be allowed to make some, and not SCTP or MPTCP, which
        // connect to addresses by other means than `connect`.
        (
            SYS_socket,
            vec![
                load(argument(0)),
                equal(libc::AF_INET as u32, [0, 12]),
                load(argument(1)),
                statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, TYPE_MASK, [0, 0]),
                equal(libc::SOCK_STREAM as u32, [0, 3]),
                load(argument(2)),
                equal(0, [6, 0]),
                equal(libc::IPPROTO_TCP as u32, [5, 6]),
                equal(libc::SOCK_DGRAM as u32, [0, 5]),
                load(argument(2)),
                equal(0, [2, 0]),
                equal(libc::IPPROTO_UDP as u32, [1, 0]),
                equal(libc::IPPROTO_ICMP as u32, [0, 1]),
                end(ALLOW),
                end(refuse_family),
            ],
        ),
    ];
    calls.extend(FORBIDDEN.map(|number| (number, vec![end(FORBID)])));
    let mut program = vec![
        load(ARCHITECTURE),
        equal(X86_64, [1, 0]),
        end(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
        statement(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, X32, [0, 1]),
        end(libc::SECCOMP_RET_KILL_PROCESS),
    ];
    for (number, body) in calls {
        program.push(equal(number as u32, [0, body.len() as u8]));
        program.extend(body);
    }
    program.push(end(ALLOW));
    program
}

/// Filters the calls of this thread and of the processes that it starts from now on, for ever. Returns where the judge
/// gets the calls from. Fails with `EBUSY` if somebody else judges calls of this process already.
pub(super) fn install(own: [RawFd; 2]) -> io::Result<OwnedFd> {
    let mut program = program(own);
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    set_no_new_privs(true)?;
    // While the judge works on a call, only a deadly signal may interrupt it: the call is not made twice.
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: the program and its instructions outlive the call, which copies them.
    let listener = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, which closes on exec.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as RawFd) })
}
