//! Decides which addresses the VMM of one VM may send to, and sends in its place.
//!
//! The filter stops a call before the kernel has read its address, which another thread of the VMM could still change.
//! So the judge copies the address, decides, and makes the call itself, with the copy, on a duplicate of the VMM's
//! descriptor. No call goes on as it was.

use super::{
    Destination, Network, NetworkCounters, Openable, Refusal, Rules,
    connections::Connections,
    pace::Pace,
    pacing::Carried,
    rate::{HEADER_BYTES, OPENING_BYTES, Rate},
    resolver,
};
use crate::cpu_share::{CpuShare, Worker};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl},
    io::Errno,
    net::{SendFlags, SocketType, connect, sendto, sockopt::socket_type},
    process::{PidfdGetfdFlags, pidfd_getfd},
};
use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::Arc,
    time::{Duration, Instant},
};

/// The size of a `struct sockaddr_in`.
const ADDRESS_BYTES: usize = 16;
/// The longest datagram.
const MAX_DATAGRAM_BYTES: u64 = 65_535;
/// How many attempts there may be for each connection that may be opened: one that is refused costs something, too.
const ATTEMPTS_PER_CONNECTION: u64 = 10;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` of `linux/seccomp.h`: who makes a call and who judges it run in turns on one
/// processor.
const SYNC_WAKE_UP: libc::c_ulong = 1;
/// How many pairs of a socket and an address are remembered as known. When there are more, all are forgotten, and
/// count once more.
const MOST_FLOWS: usize = 1024;
/// For how long such a pair is not judged again: the address may become the host's.
const JUDGED_FOR: Duration = Duration::from_secs(1);
/// The pause before connections that could not be ended are tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The judge of one VM.
pub(super) struct Judge {
    listener: OwnedFd,
    /// The VMM's process.
    vmm: OwnedFd,
    network: Network,
    openable: Arc<Openable>,
    /// The list that `own` is by.
    opened: Arc<[Destination]>,
    /// What counts of the owner's rules.
    own: Rules,
    counters: Arc<NetworkCounters>,
    share: Option<Arc<CpuShare>>,
    attempts: Pace,
    pace: Pace,
    rate: Rate,
    /// Sockets and the addresses that they have sent datagrams to, and when that was judged.
    flows: HashMap<(RawFd, SocketAddrV4), Instant>,
    connections: Connections,
    /// When to end connections that could not be ended before; `None` if there is none.
    retry: Option<Instant>,
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
        openable: Arc<Openable>,
        counters: Arc<NetworkCounters>,
        share: Option<Arc<CpuShare>>,
    ) -> Self {
        let opened = openable.now();
        let own = network.rules.permitted(&network.own, &opened);
        let now = Instant::now();
        let per_second = u64::from(network.connections_per_second);
        let attempts = Pace::new(ATTEMPTS_PER_CONNECTION * per_second, now);
        let pace = Pace::new(per_second, now);
        let rate = Rate::new(network.bytes_per_second, now);
        Self {
            listener,
            vmm,
            network,
            openable,
            opened,
            own,
            counters,
            share,
            attempts,
            pace,
            rate,
            flows: HashMap::new(),
            connections: Connections::default(),
            retry: None,
        }
    }

    /// Decides until the VMM, and whoever else has its filter, is gone.
    pub(super) fn run(mut self) {
        self.hand_over();
        let mut worker = self.share.take().map(Worker::new);
        loop {
            let now = Instant::now();
            if self.rate.due().is_some_and(|due| due <= now) {
                let vmm = &self.vmm;
                let carried = self.rate.divide(now, |socket| duplicate(vmm, socket));
                self.counters.count_carried(carried);
            }
            let mut ready = [PollFd::new(&self.listener, PollFlags::IN)];
            let polled = poll(&mut ready, self.patience(now).as_ref());
            let has_call = ready[0].revents().contains(PollFlags::IN);
            let request = match polled {
                Err(Errno::INTR) | Ok(0) => None,
                Ok(_) if has_call => {
                    if let Some(worker) = &mut worker {
                        worker.settle();
                    }
                    // The caller may have been killed meanwhile.
                    self.receive().ok()
                }
                // Nobody is left.
                _ => return,
            };
            // Right before a call is judged; and while there are connections, it does not wait for one for long.
            self.follow();
            if let Some(request) = request {
                let result = self.decide(&request);
                self.answer(request.id, result);
            }
        }
    }

    /// Has whoever waits for the other get the processor from it at once. Only Linux 6.6 and later do, and without it all
    /// goes on as well, later.
    fn hand_over(&self) {
        // SAFETY: it takes a number.
        let _ = unsafe {
            libc::ioctl(
                self.listener.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
                SYNC_WAKE_UP,
            )
        };
    }

    /// Goes by the list of what may be opened as it is now: what is open by an earlier one, and would not be by this, ends.
    fn follow(&mut self) {
        let opened = self.openable.now();
        let is_new = !Arc::ptr_eq(&opened, &self.opened);
        if !is_new && self.retry.is_none_or(|retry| Instant::now() < retry) {
            return;
        }
        if is_new {
            self.own = self.network.rules.permitted(&self.network.own, &opened);
            self.opened = opened;
        }
        let (rules, own, vmm) = (&self.network.rules, &self.own, &self.vmm);
        let stays = |to| rules.judge_within(to, own).is_ok() || resolver::is_resolver(to);
        // Those that stay do not count once more.
        self.flows.retain(|(_, to), _| stays(*to));
        let is_done = self.connections.retain(stays, |socket| duplicate(vmm, socket));
        self.retry = (!is_done).then(|| Instant::now() + RETRY);
    }

    /// How long it can wait for a call; `None` if for ever.
    fn patience(&self, now: Instant) -> Option<Timespec> {
        let next = self.rate.due().into_iter().chain(self.retry).min()?;
        Timespec::try_from(next.saturating_duration_since(now)).ok()
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
                let connection = duplicate(&self.vmm, *socket)?;
                // Datagrams of a connected socket would not be judged, and with one that blocks the judge would wait.
                if socket_type(&connection)? != SocketType::STREAM
                    || !fcntl_getfl(&connection)?.contains(OFlags::NONBLOCK)
                {
                    return Err(Errno::INVAL);
                }
                self.permit(to, OPENING_BYTES).map_err(|_| Errno::CONNREFUSED)?;
                self.rate.open(*socket, &connection)?;
                let connected = connect(&connection, &to);
                // Otherwise it is still what it was before, if it was connected.
                if matches!(connected, Ok(()) | Err(Errno::INPROGRESS)) {
                    self.connections.insert(*socket, to);
                }
                connected.map(|()| 0)
            }
            Call::Send { socket, data, address } => {
                let to = self.address(request, address)?;
                if data.bytes > MAX_DATAGRAM_BYTES {
                    return Err(Errno::MSGSIZE);
                }
                self.permit_datagram(*socket, to).map_err(|_| Errno::NETUNREACH)?;
                if !self.rate.take(data.bytes + HEADER_BYTES, Instant::now()) {
                    // As on any link with too much on it.
                    self.counters.count_dropped();
                    return Ok(data.bytes as usize);
                }
                let mut datagram = vec![0; data.bytes as usize];
                self.read(request, data.address, &mut datagram)?;
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let sent = sendto(duplicate(&self.vmm, *socket)?, &datagram, flags, &to)?;
                self.counters.count_carried(Carried { sent: sent as u64, received: 0 });
                Ok(sent)
            }
        }
    }

    /// Decides about a datagram, and counts it if it is the first from this socket to this address.
    fn permit_datagram(&mut self, socket: RawFd, to: SocketAddrV4) -> Result<(), Refusal> {
        let (flow, now) = ((socket, to), Instant::now());
        match self.flows.get(&flow).copied() {
            Some(judged) if now.saturating_duration_since(judged) < JUDGED_FOR => return Ok(()),
            Some(_) => {
                if let Err(refusal) = self.judge_address(to) {
                    self.flows.remove(&flow);
                    self.counters.count(Err(refusal));
                    return Err(refusal);
                }
            }
            None => {
                self.permit(to, 0)?;
                if self.flows.len() == MOST_FLOWS {
                    self.flows.clear();
                }
            }
        }
        self.flows.insert(flow, now);
        Ok(())
    }

    /// Decides and counts. `bytes` is what it counts as by itself.
    fn permit(&mut self, to: SocketAddrV4, bytes: u64) -> Result<(), Refusal> {
        let verdict = self.judge(to, bytes);
        self.counters.count(verdict);
        verdict
    }

    fn judge(&mut self, to: SocketAddrV4, bytes: u64) -> Result<(), Refusal> {
        if !self.attempts.take(1, Instant::now()) {
            return Err(Refusal::TooMany);
        }
        self.judge_address(to)?;
        let now = Instant::now();
        let may = self.pace.take(1, now) && self.rate.take(bytes, now);
        if may { Ok(()) } else { Err(Refusal::TooMany) }
    }

    fn judge_address(&self, to: SocketAddrV4) -> Result<(), Refusal> {
        if resolver::is_resolver(to) {
            return Ok(());
        }
        self.network.rules.judge_all(to, &self.own)
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
}

/// A duplicate of the VMM's descriptor.
fn duplicate(vmm: &OwnedFd, socket: RawFd) -> Result<OwnedFd, Errno> {
    pidfd_getfd(vmm, socket, PidfdGetfdFlags::empty())
}

/// A `struct sockaddr_in`; `None` if it is the address of another family.
fn parse(bytes: [u8; ADDRESS_BYTES]) -> Option<SocketAddrV4> {
    let [f0, f1, p0, p1, a, b, c, d, ..] = bytes;
    let is_ipv4 = u16::from_ne_bytes([f0, f1]) == libc::AF_INET as u16;
    let port = u16::from_be_bytes([p0, p1]);
    is_ipv4.then(|| SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port))
}
