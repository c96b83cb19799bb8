//! Whether anything passes a network device that a pod might have to do with.

use socket2::{Domain, SockAddr, SockFilter, Socket, Type};
use squeezy_netlink::InterfaceIndex;
use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, RawFd},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::Handle,
};

/// There is something to read, or never will be.
const EVENTS: Interest = Interest::READABLE.add(Interest::ERROR);
/// Most packets that are read at once: the socket's buffer is the smallest that there is, and holds a few.
const MAX_READ: usize = 64;

/// Sees packets of either direction over IPv4, but for those of TCP that neither open, close nor carry anything: with
/// them, the kernels at both ends of a connection keep it open while nobody uses it.
#[derive(Debug)]
pub struct Traffic(AsyncFd<Patient>);

/// A packet socket. To close it, the kernel waits until no processor is about to look at it, which takes tens of
/// milliseconds, and no thread of the runtime should wait for that.
#[derive(Debug)]
struct Patient(Option<Socket>);

impl Patient {
    fn socket(&self) -> &Socket {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl AsRawFd for Patient {
    fn as_raw_fd(&self) -> RawFd {
        self.socket().as_raw_fd()
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        if let (Some(socket), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(socket));
        }
    }
}

impl Traffic {
    /// That which a socket of [`Connection::listen`](super::Connection::listen) sees. Takes a runtime.
    pub fn of(socket: Socket) -> io::Result<Self> {
        let socket = Patient(Some(socket));
        // SAFETY: the descriptor is owned by the `AsyncFd`, which never gives it away.
        Ok(Self(unsafe { AsyncFd::register_with_interest(socket, EVENTS) }?))
    }

    /// Whether there was any since it was last asked for.
    ///
    /// # Errors
    /// The device is gone.
    pub fn take(&self) -> io::Result<bool> {
        for seen in 0..MAX_READ {
            match read(self.0.get_ref().socket()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(seen > 0),
                read => read?,
            }
        }
        Ok(true)
    }

    /// Waits until there is some, or was since it was last asked for.
    ///
    /// # Errors
    /// The device is gone.
    pub async fn seen(&self) -> io::Result<()> {
        loop {
            // If this would block, it was not ready.
            let mut ready = self.0.ready(EVENTS).await?;
            if let Ok(read) = ready.try_io(|socket| read(socket.get_ref().socket())) {
                return read;
            }
        }
    }
}

/// A socket that sees the traffic of a device of this thread's namespace from now on.
pub(super) fn listen(device: InterfaceIndex) -> io::Result<Socket> {
    // Without a protocol it sees nothing until it is bound.
    let socket = Socket::new(Domain::PACKET, Type::DGRAM.nonblocking().cloexec(), None)?;
    socket.attach_filter(&filter())?;
    socket.set_recv_buffer_size(0)?;
    socket.bind(&all_of(device)?)?;
    Ok(socket)
}

fn read(socket: &Socket) -> io::Result<()> {
    socket.recv(&mut [MaybeUninit::uninit()]).map(drop)
}

/// The address of all packets of a device.
fn all_of(device: InterfaceIndex) -> io::Result<SockAddr> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: device.number() as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: there is room for an address of any family, and the length is that of what is written.
    let made = unsafe {
        SockAddr::try_init(|storage, length| {
            storage.cast::<libc::sockaddr_ll>().write(address);
            *length = size_of::<libc::sockaddr_ll>() as u32;
            Ok(())
        })
    };
    made.map(|((), address)| address)
}

/// What the kernel runs for each packet, which begins with its IP header: how many bytes of it are kept, 0 if it is none
/// of those that are seen.
fn filter() -> [SockFilter; 18] {
    use libc::{
        BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET,
        BPF_K, BPF_LD, BPF_LDX, BPF_MISC, BPF_MSH, BPF_RET, BPF_RSH, BPF_TAX, BPF_X,
    };
    const ACCEPT: usize = 16;
    const DROP: usize = 17;
    const PROTOCOL: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
    const FRAGMENT_OFFSET: u32 = 0x1fff;
    const SYN_FIN_RST: u32 = 0x07;
    let operation = |code: u32, k| SockFilter::new(code as u16, 0, 0, k);
    // Where to go on is said from the next instruction on.
    let jump = |at: usize, code: u32, k, [then, or_else]: [usize; 2]| {
        SockFilter::new((BPF_JMP | code) as u16, (then - at - 1) as u8, (or_else - at - 1) as u8, k)
    };
    [
        operation(BPF_LD | BPF_H | BPF_ABS, PROTOCOL),
        jump(1, BPF_JEQ | BPF_K, libc::ETH_P_IP as u32, [2, DROP]),
        operation(BPF_LD | BPF_B | BPF_ABS, 9),
        jump(3, BPF_JEQ | BPF_K, libc::IPPROTO_TCP as u32, [4, ACCEPT]),
        operation(BPF_LD | BPF_H | BPF_ABS, 6),
        jump(5, BPF_JSET | BPF_K, FRAGMENT_OFFSET, [ACCEPT, 6]),
        // The length of the IP header, after which TCP's begins.
        operation(BPF_LDX | BPF_B | BPF_MSH, 0),
        operation(BPF_LD | BPF_B | BPF_IND, 13),
        jump(8, BPF_JSET | BPF_K, SYN_FIN_RST, [ACCEPT, 9]),
        // Both headers, compared with the whole length.
        operation(BPF_LD | BPF_B | BPF_IND, 12),
        operation(BPF_ALU | BPF_RSH | BPF_K, 2),
        operation(BPF_ALU | BPF_AND | BPF_K, 0x3c),
        operation(BPF_ALU | BPF_ADD | BPF_X, 0),
        operation(BPF_MISC | BPF_TAX, 0),
        operation(BPF_LD | BPF_H | BPF_ABS, 2),
        jump(15, BPF_JEQ | BPF_X, 0, [DROP, ACCEPT]),
        operation(BPF_RET | BPF_K, 1),
        operation(BPF_RET | BPF_K, 0),
    ]
}
