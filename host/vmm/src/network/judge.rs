//! Decides which addresses the VMM of one VM may send to, and sends in its place.
//!
//! The filter stops a call before the kernel has read its address, which another thread of the VMM could still change.
//! So the judge copies the address, decides, and makes the call itself, with the copy, on a duplicate of the VMM's
//! descriptor. No call goes on as it was.

use super::{Network, NetworkCounters, Refusal, own, pace::Pace, resolver};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{OFlags, fcntl_getfl},
    io::Errno,
    net::{SendFlags, connect, sendto},
    process::{PidfdGetfdFlags, pidfd_getfd},
};
use std::{
    collections::HashSet,
    io,
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::Arc,
    time::Instant,
};

/// The size of a `struct sockaddr_in`.
const ADDRESS_BYTES: usize = 16;
/// The longest datagram.
const MAX_DATAGRAM_BYTES: u64 = 65_535;
/// How many pairs of a socket and an address are remembered as known. When there are more, all are forgotten, and
/// count once more.
const MOST_FLOWS: usize = 1024;

/// The judge of one VM.
pub(super) struct Judge {
    listener: OwnedFd,
    /// The VMM's process.
    vmm: OwnedFd,
    network: Network,
    counters: Arc<NetworkCounters>,
    pace: Pace,
    /// Sockets and the addresses that they have sent datagrams to.
    flows: HashSet<(RawFd, SocketAddrV4)>,
}

/// A call that waits for its result.
struct Request {
    id: u64,
    thread: u32,
    call: Call,
}

enum Call {
    Connect { socket: RawFd, address: Region },
    Send { socket: RawFd, data: Region, address: Region },
}

/// Memory of the VMM.
struct Region {
    address: u64,
    bytes: u64,
}

impl Judge {
    pub(super) fn new(
        listener: OwnedFd,
        vmm: OwnedFd,
        network: Network,
        counters: Arc<NetworkCounters>,
    ) -> Self {
        let pace = Pace::new(network.connections_per_second, Instant::now());
        Self { listener, vmm, network, counters, pace, flows: HashSet::new() }
    }

    /// Decides until the VMM, and whoever else has its filter, is gone.
    pub(super) fn run(mut self) {
        loop {
            let mut ready = [PollFd::new(&self.listener, PollFlags::IN)];
            match poll(&mut ready, None) {
                Err(Errno::INTR) => continue,
                Ok(_) if ready[0].revents().contains(PollFlags::IN) => {}
                // Nobody is left.
                _ => return,
            }
            // The caller may have been killed meanwhile.
            let Ok(request) = self.receive() else { continue };
            let result = self.decide(&request);
            self.answer(request.id, result);
        }
    }

    fn receive(&self) -> io::Result<Request> {
        // SAFETY: all-zero bytes are a valid notification, and the kernel wants them to be zero.
        let mut seen: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        self.control(libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut seen)?;
        let [first, second, third, _, fifth, sixth] = seen.data.args;
        let socket = first as RawFd;
        let call = match libc::c_long::from(seen.data.nr) {
            libc::SYS_connect => {
                Call::Connect { socket, address: Region { address: second, bytes: third } }
            }
            // The filter sends no other one.
            _ => Call::Send {
                socket,
                data: Region { address: second, bytes: third },
                address: Region { address: fifth, bytes: sixth },
            },
        };
        Ok(Request { id: seen.id, thread: seen.pid, call })
    }

    fn answer(&self, id: u64, result: Result<usize, Errno>) {
        let (val, error) = match result {
            Ok(value) => (value as i64, 0),
            Err(errno) => (0, -errno.raw_os_error()),
        };
        let mut answer = libc::seccomp_notif_resp { id, val, error, flags: 0 };
        // Fails only if the caller has been killed.
        let _ = self.control(libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer);
    }

    fn control<T>(&self, operation: libc::Ioctl, argument: *mut T) -> io::Result<()> {
        // SAFETY: the argument is what the operation takes, and lives until it is over.
        let result = unsafe { libc::ioctl(self.listener.as_raw_fd(), operation, argument) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn decide(&mut self, request: &Request) -> Result<usize, Errno> {
        match &request.call {
            Call::Connect { socket, address } => {
                let to = self.address(request, address)?;
                self.permit(to).map_err(|_| Errno::CONNREFUSED)?;
                let socket = self.duplicate(*socket)?;
                // Otherwise the judge would wait with it.
                if !fcntl_getfl(&socket)?.contains(OFlags::NONBLOCK) {
                    return Err(Errno::INVAL);
                }
                connect(&socket, &to).map(|()| 0)
            }
            Call::Send { socket, data, address } => {
                let to = self.address(request, address)?;
                if data.bytes > MAX_DATAGRAM_BYTES {
                    return Err(Errno::MSGSIZE);
                }
                let mut datagram = vec![0; data.bytes as usize];
                self.read(request, data.address, &mut datagram)?;
                if !self.flows.contains(&(*socket, to)) {
                    self.permit(to).map_err(|_| Errno::NETUNREACH)?;
                    if self.flows.len() == MOST_FLOWS {
                        self.flows.clear();
                    }
                    self.flows.insert((*socket, to));
                }
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                sendto(self.duplicate(*socket)?, &datagram, flags, &to)
            }
        }
    }

    /// Decides and counts.
    fn permit(&mut self, to: SocketAddrV4) -> Result<(), Refusal> {
        let verdict = self.judge(to);
        self.counters.count(verdict);
        verdict
    }

    fn judge(&mut self, to: SocketAddrV4) -> Result<(), Refusal> {
        if !resolver::is_resolver(to) {
            self.network.rules.judge(to)?;
            if own::is_own(*to.ip()) {
                return Err(Refusal::Host);
            }
        }
        if self.pace.take(Instant::now()) { Ok(()) } else { Err(Refusal::TooMany) }
    }

    /// The address in a call.
    fn address(&self, request: &Request, region: &Region) -> Result<SocketAddrV4, Errno> {
        if region.bytes < ADDRESS_BYTES as u64 {
            return Err(Errno::INVAL);
        }
        let mut address = [0; ADDRESS_BYTES];
        self.read(request, region.address, &mut address)?;
        parse(address).ok_or_else(|| {
            self.counters.count(Err(Refusal::Reserved));
            Errno::AFNOSUPPORT
        })
    }

    /// Copies memory of the thread that makes the call, all of it.
    fn read(&self, request: &Request, address: u64, to: &mut [u8]) -> Result<(), Errno> {
        let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let remote = libc::iovec { iov_base: address as *mut _, iov_len: to.len() };
        // SAFETY: `local` is the slice that is written; the kernel checks `remote`.
        let read = unsafe {
            libc::process_vm_readv(
                request.thread as libc::pid_t,
                &raw const local,
                1,
                &raw const remote,
                1,
                0,
            )
        };
        if read != to.len() as isize {
            return Err(Errno::FAULT);
        }
        // If the thread was killed before, its number may have been somebody else's.
        let mut id = request.id;
        match self.control(libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw mut id) {
            Ok(()) => Ok(()),
            Err(_) => Err(Errno::FAULT),
        }
    }

    fn duplicate(&self, socket: RawFd) -> Result<OwnedFd, Errno> {
        pidfd_getfd(&self.vmm, socket, PidfdGetfdFlags::empty())
    }
}

/// A `struct sockaddr_in`; `None` if it is the address of another family.
fn parse(bytes: [u8; ADDRESS_BYTES]) -> Option<SocketAddrV4> {
    let [f0, f1, p0, p1, a, b, c, d, ..] = bytes;
    let is_ipv4 = u16::from_ne_bytes([f0, f1]) == libc::AF_INET as u16;
    let port = u16::from_be_bytes([p0, p1]);
    is_ipv4.then(|| SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port))
}
