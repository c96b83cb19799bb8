//! The judge at work on threads of this process, whose calls the filter stops like those of a VMM.

#[path = "../../../../../scripts/outside.rs"]
mod outside;

use super::*;
use crate::skip::skip;
use outside::{HOST, METADATA, Outside, PRIVATE, PUBLIC, move_to_host, serve};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, SendFlags, SocketFlags, SocketType, connect, sendto, socket_with},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsFd, AsRawFd},
    os::unix::net::UnixStream,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

/// Runs this on a thread whose calls are judged; returns its result and what was counted.
fn judged<T: Send + 'static>(
    network: Network,
    work: impl FnOnce(&UnixStream) -> T + Send + 'static,
) -> (T, NetworkCounts) {
    judged_by(network, Arc::default(), work)
}

/// The same for an owner who may open this.
fn judged_by<T: Send + 'static>(
    network: Network,
    openable: Arc<Openable>,
    work: impl FnOnce(&UnixStream) -> T + Send + 'static,
) -> (T, NetworkCounts) {
    let counters = Arc::<NetworkCounters>::default();
    let counted = counters.clone();
    let (calls, confined) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        let (monitor, channel) = UnixStream::pair().unwrap();
        calls.send(confine([monitor.as_raw_fd(), channel.as_raw_fd()]).unwrap()).unwrap();
        let result = work(&monitor);
        // They cannot be closed.
        std::mem::forget((monitor, channel));
        result
    });
    let own = Pid::from_raw(std::process::id() as i32).unwrap();
    let vmm = pidfd_open(own, PidfdFlags::empty()).unwrap();
    let judge = Judge::new(confined.recv().unwrap(), vmm, network, openable, counters, None);
    let judge = std::thread::spawn(|| judge.run());
    let result = worker.join().unwrap();
    // Nobody is left to be judged.
    judge.join().unwrap();
    (result, counted.read())
}

fn open(kind: SocketType) -> OwnedFd {
    socket_with(AddressFamily::INET, kind, SocketFlags::NONBLOCK, None).unwrap()
}

/// Connects like QEMU does, and returns the connection once it is made.
fn reach(address: &str, port: u16) -> Result<TcpStream, Errno> {
    let socket = open(SocketType::STREAM);
    match connect(&socket, &SocketAddrV4::new(address.parse().unwrap(), port)) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error),
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false).unwrap();
    Ok(stream)
}

/// Waits until there is something to read. A time limit of the socket is not among the options that may be set.
fn await_readable(socket: &impl AsFd) {
    let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&limit));
    assert_eq!(ready, Ok(1), "an answer");
}

fn greeting(stream: Result<TcpStream, Errno>) -> Result<String, Errno> {
    let (mut stream, mut text) = (stream?, String::new());
    stream.write_all(b"hello?").unwrap();
    await_readable(&stream);
    stream.read_to_string(&mut text).unwrap();
    Ok(text)
}

#[test]
fn only_what_the_rules_allow_is_reached() {
    let Some(outside) = Outside::enter() else {
        return skip("no network namespace can be made here");
    };
    let port = outside.run(|| serve(0, b"hello")).join().unwrap();
    // A server of the host's own.
    let own = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    let network = Network {
        rules: Rules { allow: Vec::new(), deny: vec![format!("{PUBLIC}:9").parse().unwrap()] },
        ..Network::default()
    };
    let (refused, counts) = judged(network, move |_| {
        assert_eq!(greeting(reach(PUBLIC, port)).unwrap(), "hello");
        [
            greeting(reach(PUBLIC, 9)),
            greeting(reach(PRIVATE, port)),
            greeting(reach(METADATA, port)),
            greeting(reach("127.0.0.1", own)),
            greeting(reach(HOST, own)),
            greeting(reach("203.0.113.255", port)),
            greeting(reach("0.0.0.0", own)),
        ]
    });
    assert!(refused.iter().all(|result| *result == Err(Errno::CONNREFUSED)), "{refused:?}");
    assert_eq!(counts.opened, 1);
    let count = |refusal| counts.refused[refusal as usize];
    assert_eq!(count(Refusal::Denied), 1);
    assert_eq!(count(Refusal::Private), 1);
    assert_eq!(count(Refusal::Reserved), 3);
    assert_eq!(count(Refusal::Host), 2, "the host's address, and its broadcast");

    let rules = Rules { allow: vec!["10.9.0.0/24".parse().unwrap()], deny: Vec::new() };
    let network = Network { rules, ..Network::default() };
    let (greeted, _) = judged(network, move |_| greeting(reach(PRIVATE, port)));
    assert_eq!(greeted.unwrap(), "hello");

    let own =
        Rules { allow: vec![PRIVATE.parse().unwrap()], deny: vec!["0.0.0.0/0".parse().unwrap()] };
    let network = Network { own, ..Network::default() };
    let openable = Arc::new(Openable::new(&[PRIVATE.parse().unwrap()]));
    let both = move |_: &UnixStream| [PRIVATE, PUBLIC].map(|to| greeting(reach(to, port)));
    let (greeted, _) = judged_by(network.clone(), openable, both);
    assert_eq!(greeted, [Ok("hello".to_owned()), Err(Errno::CONNREFUSED)]);
    let (greeted, _) = judged(network, both);
    assert_eq!(greeted, [Err(Errno::CONNREFUSED), Err(Errno::CONNREFUSED)]);
}

#[test]
fn what_is_taken_back_is_closed_and_what_is_open_there_ends() {
    let Some(outside) = Outside::enter() else {
        return skip("no network namespace can be made here");
    };
    let port = outside.run(|| serve(0, b"hello")).join().unwrap();
    let networks: [Destination; 1] = [PRIVATE.parse().unwrap()];
    let own = Rules { allow: networks.to_vec(), deny: Vec::new() };
    let network = Network { own, ..Network::default() };
    let openable = Arc::new(Openable::new(&networks));
    let changed = openable.clone();
    let (_, counts) = judged_by(network, openable, move |_| {
        let (private, public) = (reach(PRIVATE, port).unwrap(), reach(PUBLIC, port));
        let datagrams = open(SocketType::DGRAM);
        let send = |address: &str| {
            let to = SocketAddrV4::new(address.parse().unwrap(), port);
            sendto(&datagrams, b"x", SendFlags::empty(), &to)
        };
        assert_eq!([PRIVATE, PUBLIC].map(send), [Ok(1), Ok(1)]);
        changed.set(&[]);
        assert_eq!([PRIVATE, PUBLIC].map(send), [Err(Errno::NETUNREACH), Ok(1)]);
        assert_eq!(reach(PRIVATE, port).map(drop), Err(Errno::CONNREFUSED));
        // Nobody has said anything on it, so the server has not ended it.
        await_readable(&private);
        let read = (&private).read(&mut [0; 5]);
        assert!(!matches!(read, Ok(1..)), "{read:?}");
        // All else goes on, and it can be opened again.
        assert_eq!(greeting(public).unwrap(), "hello");
        changed.set(&networks);
        assert_eq!(greeting(reach(PRIVATE, port)).unwrap(), "hello");
    });
    assert_eq!(counts.refused[Refusal::Private as usize], 2);
    assert_eq!(counts.opened, 5, "what stays open counts once");
}

#[test]
fn datagrams_are_judged_one_by_one_and_arrive_whole() {
    let Some(outside) = Outside::enter() else {
        return skip("no network namespace can be made here");
    };
    let (opened, port) = mpsc::channel();
    let echo = outside.run(move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        opened.send(socket.local_addr().unwrap().port()).unwrap();
        let mut datagram = [0; 65_536];
        let (length, from) = socket.recv_from(&mut datagram).unwrap();
        socket.send_to(&datagram[..length], from).unwrap();
    });
    let port = port.recv().unwrap();
    let (_, counts) = judged(Network::default(), move |_| {
        let socket = open(SocketType::DGRAM);
        let to = |address: &str| SocketAddrV4::new(address.parse().unwrap(), port);
        let send = |bytes: &[u8], address| sendto(&socket, bytes, SendFlags::empty(), &to(address));
        let datagram: Vec<u8> = (0..9000).map(|i| i as u8).collect();
        assert_eq!(send(&datagram, PRIVATE), Err(Errno::NETUNREACH));
        assert_eq!(send(&datagram, "255.255.255.255"), Err(Errno::NETUNREACH));
        assert_eq!(send(&vec![0; 70_000], PUBLIC), Err(Errno::MSGSIZE));
        assert_eq!(send(&datagram, PUBLIC), Ok(datagram.len()));
        let socket = UdpSocket::from(socket);
        socket.set_nonblocking(false).unwrap();
        await_readable(&socket);
        let mut answer = [0; 65_536];
        let length = socket.recv(&mut answer).unwrap();
        assert!(answer[..length] == datagram);
    });
    echo.join().unwrap();
    assert_eq!((counts.opened, counts.sent_bytes), (1, 9000));
}

#[test]
fn an_address_that_becomes_the_hosts_is_closed_to_whoever_sends_there_already() {
    let Some(_outside) = Outside::enter() else {
        return skip("no network namespace can be made here");
    };
    let (send_moves, moves) = mpsc::channel();
    // Whoever is judged can start nobody who is not.
    let mover = std::thread::spawn(move || {
        moves.recv().unwrap();
        move_to_host(PUBLIC);
    });
    let (last, counts) = judged(Network::default(), move |_| {
        let socket = open(SocketType::DGRAM);
        let to = SocketAddrV4::new(PUBLIC.parse().unwrap(), 9);
        let send = || sendto(&socket, b"x", SendFlags::empty(), &to);
        assert_eq!(send(), Ok(1));
        send_moves.send(()).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while send().is_ok() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        send()
    });
    mover.join().unwrap();
    assert_eq!(last, Err(Errno::NETUNREACH));
    assert_eq!((counts.opened, counts.refused[Refusal::Host as usize]), (1, 2));
}

#[test]
fn nothing_leads_around_the_judge() {
    let (results, _) = judged(Network::default(), |monitor| {
        let call = |number, [a, b, c]: [usize; 3]| {
            // SAFETY: the kernel copies what these calls point to, which is nothing here, and refuses them.
            match unsafe { libc::syscall(number, a, b, c, 0, 0, 0) } {
                -1 => std::io::Error::last_os_error().raw_os_error().unwrap(),
                _ => 0,
            }
        };
        let udp = open(SocketType::DGRAM).as_raw_fd() as usize;
        let own = monitor.as_raw_fd() as usize;
        assert_eq!(call(libc::SYS_sendmsg, [own, 0, 0]), libc::EFAULT, "it may use its own");
        let blocking =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::empty(), None)
                .unwrap();
        let to = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 9), 9);
        assert_eq!(connect(&blocking, &to), Err(Errno::INVAL), "the judge waits for nobody");
        let datagrams = open(SocketType::DGRAM);
        assert_eq!(connect(&datagrams, &to), Err(Errno::INVAL), "each datagram has an address");
        let set = |socket: usize, level: i32, option: i32| {
            // Valid for each of them.
            let value = 64_i32;
            // SAFETY: the kernel copies the four bytes of the value.
            let result = unsafe {
                libc::setsockopt(socket as i32, level, option, (&raw const value).cast(), 4)
            };
            (result < 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap())
        };
        let tcp = blocking.as_raw_fd() as usize;
        for (level, option) in [
            (libc::SOL_SOCKET, libc::SO_REUSEADDR),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY),
            (libc::IPPROTO_IP, libc::IP_TTL),
        ] {
            assert_eq!(set(tcp, level, option), None, "{level} {option}");
        }
        for (level, option) in [
            (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE),
            (libc::SOL_SOCKET, libc::SO_SNDBUF),
            (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
            (libc::IPPROTO_IP, libc::IP_OPTIONS),
            (libc::IPPROTO_UDP, libc::TCP_NODELAY),
        ] {
            assert_eq!(set(tcp, level, option), Some(libc::EACCES), "{level} {option}");
        }
        assert_eq!(set(own, libc::SOL_SOCKET, libc::SO_SNDBUF), None, "its own");
        [
            call(libc::SYS_sendmsg, [udp, 0, 0]),
            call(libc::SYS_sendmmsg, [udp, 0, 0]),
            call(libc::SYS_bind, [udp, 0, 0]),
            call(libc::SYS_listen, [udp, 0, 0]),
            call(libc::SYS_close, [own, 0, 0]),
            call(libc::SYS_dup2, [udp, own, 0]),
            call(libc::SYS_dup3, [udp, own, 0]),
            call(libc::SYS_close_range, [own, own, 0]),
            call(libc::SYS_io_uring_setup, [1, 0, 0]),
            call(libc::SYS_ptrace, [0, 0, 0]),
            call(libc::SYS_pidfd_getfd, [0, 0, 0]),
            call(libc::SYS_process_vm_writev, [1, 0, 0]),
        ]
    });
    assert_eq!(results, [libc::EACCES; 12]);
    let (families, _) = judged(Network::default(), |_| {
        [
            (AddressFamily::INET6, SocketType::STREAM),
            (AddressFamily::UNIX, SocketType::STREAM),
            (AddressFamily::NETLINK, SocketType::RAW),
            (AddressFamily::PACKET, SocketType::RAW),
            (AddressFamily::INET, SocketType::RAW),
        ]
        .map(|(family, kind)| socket_with(family, kind, SocketFlags::empty(), None).unwrap_err())
    });
    assert_eq!(families, [Errno::AFNOSUPPORT; 5]);
    let (protocols, _) = judged(Network::default(), |_| {
        [
            (libc::SOCK_STREAM, libc::IPPROTO_TCP),
            (libc::SOCK_DGRAM, libc::IPPROTO_UDP),
            (libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
            (libc::SOCK_STREAM, libc::IPPROTO_SCTP),
            (libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE),
            (libc::SOCK_STREAM, libc::IPPROTO_ICMP),
        ]
        .map(|(kind, protocol)| {
            // SAFETY: there are no pointers.
            let socket = unsafe { libc::socket(libc::AF_INET, kind, protocol) };
            (socket < 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap())
        })
    });
    let refused = Some(libc::EAFNOSUPPORT);
    assert_eq!(protocols, [None, None, refused, refused, refused, refused]);
}

#[test]
fn bad_addresses_are_refused() {
    let (results, counts) = judged(Network::default(), |_| {
        let socket = open(SocketType::STREAM);
        let connect = |address: &[u8], length: usize| {
            // SAFETY: the kernel copies so many bytes, or the judge does, which checks.
            let result = unsafe {
                libc::syscall(libc::SYS_connect, socket.as_raw_fd(), address.as_ptr(), length)
            };
            (result < 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap())
        };
        let mut local = [0; 110];
        local[0] = libc::AF_UNIX as u8;
        // SAFETY: the kernel checks the address, which is nowhere.
        let nowhere = unsafe { libc::syscall(libc::SYS_connect, socket.as_raw_fd(), 8, 16) };
        let nowhere =
            (nowhere < 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap());
        [connect(&[2, 0], 2), connect(&local, 110), connect(&[0; 28], 28), nowhere]
    });
    let expected = [libc::EINVAL, libc::EAFNOSUPPORT, libc::EAFNOSUPPORT, libc::EFAULT];
    assert_eq!(results, expected.map(Some));
    assert_eq!(counts.refused[Refusal::Reserved as usize], 2);
}

#[test]
fn an_ipv4_address_in_one_of_ipv6_is_refused_too() {
    let addresses = ["::ffff:203.0.113.1", "64:ff9b::203.0.113.1", "2002:cb00:7101::", "::1"];
    let (results, counts) = judged(Network::default(), move |_| {
        addresses.map(|address| {
            let to = SocketAddrV6::new(address.parse().unwrap(), 80, 0, 0);
            let datagram = sendto(open(SocketType::DGRAM), b"x", SendFlags::empty(), &to);
            (connect(open(SocketType::STREAM), &to), datagram)
        })
    });
    let refused = Errno::AFNOSUPPORT;
    assert_eq!(results, [(Err(refused), Err(refused)); 4]);
    assert_eq!((counts.opened, counts.refused[Refusal::Reserved as usize]), (0, 8));
}

/// For how many seconds something may have happened that is allowed so often in a second: for one at once, and for those
/// that have begun since.
fn seconds_since(begin: Instant) -> usize {
    2 + begin.elapsed().as_secs() as usize
}

#[test]
fn a_flood_costs_the_flooder() {
    let Some(_outside) = Outside::enter() else {
        return skip("no network namespace can be made here");
    };
    let network = Network { connections_per_second: 5, ..Network::default() };
    let begin = Instant::now();
    let (refused, counts) = judged(network, |_| {
        let address = |n: u8| Ipv4Addr::new(203, 0, 113, n).to_string();
        (10..60).filter(|&n| reach(&address(n), 80).is_err()).count()
    });
    assert!(50 - refused <= 5 * seconds_since(begin), "{refused}");
    assert_eq!(counts.refused[Refusal::TooMany as usize] as usize, refused);
}

#[test]
fn what_is_refused_is_judged_so_often_in_a_second_and_no_more() {
    let network = Network { connections_per_second: 5, ..Network::default() };
    let begin = Instant::now();
    let (refused, counts) = judged(network, |_| {
        let datagrams = open(SocketType::DGRAM);
        let to = SocketAddrV4::new(PRIVATE.parse().unwrap(), 80);
        let send = || sendto(&datagrams, b"x", SendFlags::empty(), &to);
        (0..500).filter(|_| reach(PRIVATE, 80).is_err() && send().is_err()).count()
    });
    assert_eq!(refused, 500);
    let count = |refusal| counts.refused[refusal as usize];
    assert_eq!(count(Refusal::Private) + count(Refusal::TooMany), 1000);
    let most = 50 * seconds_since(begin) as u64;
    assert!((50..=most).contains(&count(Refusal::Private)), "{counts:?}");
}

/// Counts what arrives outside, by TCP and UDP at the same port, which is the result.
fn sink(outside: &Outside) -> (u16, Arc<AtomicU64>) {
    let arrived = Arc::<AtomicU64>::default();
    let (streams, datagrams) = (arrived.clone(), arrived.clone());
    let port = outside.run(move || {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = UdpSocket::bind(address).unwrap();
        std::thread::spawn(move || {
            let mut block = vec![0; 1 << 16];
            loop {
                let length = socket.recv(&mut block).unwrap();
                datagrams.fetch_add(length as u64, Ordering::Relaxed);
            }
        });
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let streams = streams.clone();
                std::thread::spawn(move || {
                    let mut block = vec![0; 1 << 16];
                    while let Ok(length @ 1..) = stream.read(&mut block) {
                        streams.fetch_add(length as u64, Ordering::Relaxed);
                    }
                });
            }
        });
        address.port()
    });
    (port.join().unwrap(), arrived)
}

/// A megabyte a second, which everybody has: what is measured are the limits.
const RATE: u64 = 1 << 20;
/// For how long it is sent.
const SENDING: Duration = Duration::from_secs(6);

/// Has somebody send until the time is over; returns what arrives meanwhile and in the two seconds after it, as a part of
/// what the rate allows in this time, and what was counted.
fn part_of_the_rate(
    outside: &Outside,
    send: impl FnOnce(u16, Instant) + Send + 'static,
) -> (f64, NetworkCounts) {
    let (port, arrived) = sink(outside);
    let network =
        Network { bytes_per_second: RATE, connections_per_second: 10_000, ..Network::default() };
    let (_, counts) = judged(network, move |_| send(port, Instant::now() + SENDING));
    std::thread::sleep(Duration::from_secs(2));
    let arrived = arrived.load(Ordering::Relaxed) as f64;
    (arrived / (RATE as f64 * SENDING.as_secs_f64()), counts)
}

/// As much as a connection takes.
fn pour(stream: &mut TcpStream, until: Instant) {
    stream.set_nonblocking(true).unwrap();
    let block = vec![0; 1 << 16];
    while Instant::now() < until {
        if stream.write(&block).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn what_is_sent_in_a_second_is_limited_and_is_not_much_less() {
    let Some(outside) = Outside::enter() else {
        return skip("no network namespace can be made here");
    };
    let (part, counts) = part_of_the_rate(&outside, |port, until| {
        // One that sends nothing takes little from the one that does.
        let _idle = reach(PUBLIC, port).unwrap();
        pour(&mut reach(PUBLIC, port).unwrap(), until);
    });
    assert!((0.5..2.0).contains(&part), "one connection: {part}");
    assert_eq!((counts.opened, counts.dropped), (2, 0));
    // All but what was sent after the last look.
    let counted = counts.sent_bytes as f64 / (RATE as f64 * SENDING.as_secs_f64());
    assert!((0.5 * part..1.1 * part).contains(&counted), "{counted} of {part} counted");

    let (part, _) = part_of_the_rate(&outside, |port, until| {
        let mut streams: Vec<_> = (0..4).map(|_| reach(PUBLIC, port).unwrap()).collect();
        std::thread::scope(|scope| {
            for stream in &mut streams {
                scope.spawn(|| pour(stream, until));
            }
        });
    });
    assert!((0.5..2.0).contains(&part), "four connections: {part}");
}

#[test]
fn neither_many_connections_nor_datagrams_get_past_the_rate() {
    let Some(outside) = Outside::enter() else {
        return skip("no network namespace can be made here");
    };
    let (part, counts) = part_of_the_rate(&outside, |port, until| {
        while Instant::now() < until {
            // What the kernel has taken is still sent when they are closed.
            match reach(PUBLIC, port) {
                Ok(mut stream) => pour(&mut stream, Instant::now() + Duration::from_millis(10)),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    });
    assert!((0.1..2.0).contains(&part), "one after another: {part}");
    assert!(counts.refused[Refusal::TooMany as usize] > 0, "{counts:?}");

    let (part, counts) = part_of_the_rate(&outside, |port, until| {
        let to = SocketAddrV4::new(PUBLIC.parse().unwrap(), port);
        let (socket, datagram) = (open(SocketType::DGRAM), [0; 1400]);
        let mut stream = reach(PUBLIC, port).unwrap();
        let sending = std::thread::spawn(move || pour(&mut stream, until));
        while Instant::now() < until {
            for _ in 0..100 {
                sendto(&socket, &datagram, SendFlags::empty(), &to).unwrap();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        sending.join().unwrap();
    });
    assert!((0.5..2.0).contains(&part), "both: {part}");
    assert!(counts.dropped > 1000, "{counts:?}");
}
