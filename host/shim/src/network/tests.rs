#[path = "../../../../scripts/outside.rs"]
mod outside;

use super::*;
use crate::skip::skip;
use outside::{HOST, Outside, PUBLIC};
use rustix::event::{PollFd, PollFlags, poll};
use socket2::{SockRef, TcpKeepalive};
use squeezy_protocol::network::GATEWAY;
use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsFd, AsRawFd},
    path::PathBuf,
    process::Command,
    thread,
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// A network namespace, as it is made for a pod, and what can be reached from it.
struct Pod {
    namespace: File,
    outside: Outside,
}

impl Pod {
    /// `None` if none can be made here.
    fn new() -> Option<Self> {
        let made = thread::spawn(|| {
            let outside = Outside::enter()?;
            let namespace = File::open("/proc/thread-self/ns/net").unwrap();
            Some(Self { namespace, outside })
        });
        let made = made.join().unwrap();
        if made.is_none() {
            skip("no network namespace can be made here");
        }
        made
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.namespace.as_raw_fd()).into()
    }

    /// What a program prints there.
    fn said(&self, command: &str) -> String {
        let run = || Command::new("sh").args(["-c", command]).output();
        let output = Namespace::open(&self.path()).unwrap().run(run).unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// All that a connection may change.
    fn state(&self) -> String {
        self.said(
            "ip -o link | cut -d' ' -f2; ip rule; ip -4 -o address | cut -d: -f2; ip -4 route show table all
             cd /proc/sys/net/ipv4; cat ip_forward conf/*/forwarding conf/*/proxy_arp conf/*/rp_filter
             cat conf/*/route_localnet neigh/*/proxy_delay",
        )
    }

    fn outside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.outside.run(work).join().unwrap()
    }
}

/// A guest behind a tap device: a namespace that has what the agent makes of it.
fn guest(tap: OwnedFd, connection: &Connection) -> Namespace {
    let (number, Network { address, mtu }) = (connection.number(), connection.network());
    let made = apart(|| {
        Namespace::unshare()?;
        let device = "net0".parse::<TapName>().unwrap().make()?;
        let (netlink, interface) = (Netlink::open()?, InterfaceIndex::of("net0")?);
        netlink.set_hardware_address(interface, Network::device_address(number).0)?;
        netlink.set_mtu(interface, mtu)?;
        netlink.add_address(interface, address)?;
        netlink.turn_on(interface)?;
        netlink.add_route(interface, Some(GATEWAY), None)?;
        netlink.add_route(interface, None, Some(GATEWAY))?;
        netlink.add_neighbour(interface, GATEWAY, Network::gateway_address(number).0)?;
        netlink.turn_on(InterfaceIndex::of("lo")?)?;
        fs::write("/proc/sys/net/ipv4/conf/net0/route_localnet", "1")?;
        Ok((Namespace::own()?, device))
    });
    let (namespace, device) = made.unwrap();
    // What QEMU and its guest's driver do, until the process ends.
    for (from, to) in [(&tap, &device), (&device, &tap)] {
        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || pass(&from, &to));
    }
    namespace
}

fn pass(from: impl AsFd, to: impl AsFd) {
    let mut frame = vec![0; 1 << 17];
    loop {
        poll(&mut [PollFd::new(&from, PollFlags::IN)], None).unwrap();
        if let Ok(length) = rustix::io::read(&from, &mut frame[..]) {
            // A device that is turned off takes nothing.
            let _ = rustix::io::write(&to, &frame[..length]);
        }
    }
}

/// A connected pod and its guest.
fn connected() -> Option<(Pod, Networks, Connection, Namespace)> {
    connected_after("")
}

/// The same, of a pod in whose namespace a program has run.
fn connected_after(command: &str) -> Option<(Pod, Networks, Connection, Namespace)> {
    let pod = Pod::new()?;
    pod.said(command);
    let (networks, mut taps) = Networks::make(2).unwrap();
    let connection = networks.connect(&pod.path()).unwrap().unwrap();
    let guest = guest(taps.remove(0), &connection);
    Some((pod, networks, connection, guest))
}

#[test]
fn a_pod_is_reached_at_its_address_and_reaches_others_from_it() {
    let Some((pod, _networks, connection, guest)) = connected() else { return };
    assert_eq!(connection.network(), Network { address: HOST.parse().unwrap(), mtu: 1500 });
    let listener = guest.run(|| TcpListener::bind((HOST, 80))).unwrap();
    // More than all buffers between the two hold, and an answer after the end of the request.
    let length = 8 << 20;
    let asked = thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        stream.write_all(&said[..1 << 20]).unwrap();
        (said.len(), peer.ip().to_string())
    });
    let answered = pod.outside(move || {
        let mut stream = TcpStream::connect((HOST, 80)).unwrap();
        stream.write_all(&vec![7; length]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap()
    });
    assert_eq!(answered, 1 << 20);
    assert_eq!(asked.join().unwrap(), (length, PUBLIC.to_owned()));

    let listener = pod.outside(|| TcpListener::bind((PUBLIC, 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    let _stream = guest.run(|| TcpStream::connect((PUBLIC, port))).unwrap();
    assert_eq!(listener.accept().unwrap().1.ip().to_string(), HOST);
    // Nothing of the namespace itself answers.
    let refused = guest.run(|| TcpStream::connect((PUBLIC, 1))).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_guest_sends_from_no_other_address_whatever_the_node_says() {
    // Some distributions have 2 for all interfaces, and the kernel takes the greater one.
    for of_all in 0..=2 {
        let set = format!("echo {of_all} >/proc/sys/net/ipv4/conf/all/rp_filter");
        let Some((pod, _networks, _connection, guest)) = connected_after(&set) else { return };
        let socket = pod.outside(|| UdpSocket::bind((PUBLIC, 0))).unwrap();
        let to = socket.local_addr().unwrap();
        guest
            .run(|| {
                let netlink = Netlink::open()?;
                for other in ["10.9.0.7", "203.0.113.9", PUBLIC, "127.0.0.1", "127.0.0.2"] {
                    let other = other.parse().unwrap();
                    netlink.add_address(InterfaceIndex::of("net0")?, other)?;
                    // To an address of its own it sends nothing.
                    if other.to_string() != PUBLIC {
                        let _ = UdpSocket::bind((other, 0))?.send_to(b"false", to);
                    }
                    netlink.remove_local(InterfaceIndex::of("net0")?, other)?;
                }
                UdpSocket::bind((HOST, 0))?.send_to(b"true", to)
            })
            .unwrap();
        let mut said = [0; 16];
        let (length, from) = socket.recv_from(&mut said).unwrap();
        let said = (&said[..length], from.ip().to_string());
        assert_eq!(said, (&b"true"[..], HOST.to_owned()), "{of_all}");
    }
}

#[test]
fn what_comes_from_other_interfaces_is_checked_as_before() {
    let Some(pod) = Pod::new() else { return };
    pod.said(
        "ip link add more type veth peer name other; ip address add 192.0.2.2/24 dev more
         ip link set more up; ip link set other up; cd /proc/sys/net/ipv4/conf
         echo 1 >all/rp_filter; echo 0 >outside/rp_filter; echo 0 >more/rp_filter",
    );
    // Whether each takes what comes from a neighbour of its own, and of the other one.
    let taken = || {
        [("outside", PUBLIC), ("more", "192.0.2.1"), ("outside", "192.0.2.1"), ("more", PUBLIC)]
            .map(|(interface, sender)| {
                let get =
                    format!("ip route get 192.0.2.2 from {sender} iif {interface} 2>/dev/null");
                !pod.said(&get).is_empty()
            })
    };
    assert_eq!(taken(), [true, true, false, false]);
    let (networks, _taps) = Networks::make(1).unwrap();
    let _connection = networks.connect(&pod.path()).unwrap().unwrap();
    assert_eq!(taken(), [true, true, false, false]);
}

#[test]
fn what_comes_for_others_is_not_sent_on() {
    let Some((pod, ..)) = connected() else { return };
    let route =
        |to: &str| pod.said(&format!("ip route get {to} from {PUBLIC} iif outside 2>/dev/null"));
    assert!(route(HOST).contains("dev squeezy0"), "{}", route(HOST));
    assert_eq!(route("10.9.0.1"), "");
    assert_eq!(route("192.0.2.1"), "");
}

#[test]
fn whoever_is_in_the_namespace_reaches_the_loopback_interface_of_the_guest() {
    let Some((pod, _networks, _connection, guest)) = connected() else { return };
    let namespace = Namespace::open(&pod.path()).unwrap();
    for address in ["127.0.0.1", "0.0.0.0"] {
        let listener = guest.run(|| TcpListener::bind((address, 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut asks = namespace.run(|| TcpStream::connect(("127.0.0.1", port))).unwrap();
        let (mut answers, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), GATEWAY);
        // More than all buffers between the two hold.
        let length = 8 << 20;
        let asking = thread::spawn(move || {
            asks.write_all(&vec![7; length]).unwrap();
            asks.shutdown(Shutdown::Write).unwrap();
            asks.read_to_end(&mut Vec::new()).unwrap()
        });
        let mut said = Vec::new();
        assert_eq!(answers.read_to_end(&mut said).unwrap(), length, "at {address}");
        answers.write_all(&said[..1 << 20]).unwrap();
        drop(answers);
        assert_eq!(asking.join().unwrap(), 1 << 20, "at {address}");
    }
    let refused = namespace.run(|| TcpStream::connect(("127.0.0.1", 1))).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn nobody_else_reaches_the_loopback_interface_of_the_guest_whatever_the_node_says() {
    let Some(pod) = Pod::new() else { return };
    // A namespace may have more interfaces than the pod's.
    let add = |name: &str, network: &str| {
        pod.said(&format!(
            "ip link add {name} type veth peer name to-{name}; ip address add {network}.2/24 dev {name}
             ip link set {name} up; ip link set to-{name} up"
        ))
    };
    add("more", "192.0.2");
    pod.said(
        "cd /proc/sys/net/ipv4/conf
         for interface in all default outside more; do echo 1 >$interface/route_localnet; done",
    );
    let route = |to: &str, from: &str, by: &str| {
        pod.said(&format!("ip route get {to} from {from} iif {by} 2>/dev/null"))
    };
    for (from, by) in [(PUBLIC, "outside"), ("192.0.2.1", "more")] {
        assert_ne!(route("127.0.0.1", from, by), "", "nothing is to be refused");
    }
    let before = pod.state();
    let (networks, _taps) = Networks::make(1).unwrap();
    let connection = networks.connect(&pod.path()).unwrap().unwrap();
    // Nor by one that it gets later.
    add("late", "198.51.100");
    assert_ne!(route("198.51.100.2", "198.51.100.1", "late"), "", "it takes nothing");
    for (from, by) in [(PUBLIC, "outside"), ("192.0.2.1", "more"), ("198.51.100.1", "late")] {
        for to in ["127.0.0.1", "127.0.0.2"] {
            assert_eq!(route(to, from, by), "", "to {to} by {by}");
        }
    }
    pod.said("ip link delete late");
    // What it sends from there comes to the namespace, which has asked, and no further.
    assert_ne!(route(&GATEWAY.to_string(), "127.0.0.1", "squeezy0"), "");
    // Not even if the kernel took all senders from it.
    pod.said("cd /proc/sys/net/ipv4/conf/squeezy0 && echo 0 >rp_filter && echo 1 >accept_local");
    for from in ["127.0.0.1", "127.0.0.2"] {
        assert_eq!(route(PUBLIC, from, "squeezy0"), "", "from {from}");
    }
    for from in [HOST, "192.0.2.2"] {
        assert_ne!(route(PUBLIC, from, "squeezy0"), "", "from {from}");
    }
    networks.disconnect(connection).unwrap();
    assert_eq!(pod.state(), before);
}

#[test]
fn a_namespace_is_left_as_it_was() {
    let Some(pod) = Pod::new() else { return };
    let (networks, _taps) = Networks::make(1).unwrap();
    let before = pod.state();
    let connection = networks.connect(&pod.path()).unwrap().unwrap();
    let connected = pod.state();
    assert_ne!(connected, before);
    let (others, _) = Networks::make(1).unwrap();
    let refused = others.connect(&pod.path()).unwrap_err();
    assert!(refused.to_string().contains("another pod"), "{refused}");
    assert_eq!(pod.state(), connected);
    networks.disconnect(connection).unwrap();
    assert_eq!(pod.state(), before);
    networks.give_back(0);
    // Something is in the way.
    pod.said(
        "ip link set outside down; ip link set outside name squeezy0; ip link set squeezy0 up",
    );
    let before = pod.state();
    for _ in 0..2 {
        let refused = networks.connect(&pod.path()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(pod.state(), before);
    }
}

#[test]
fn that_every_device_is_taken_or_lost_is_told_from_other_errors() {
    let (Some(pod), Some(other)) = (Pod::new(), Pod::new()) else { return };
    let (networks, _taps) = Networks::make(1).unwrap();
    let connection = networks.connect(&pod.path()).unwrap().unwrap();
    let refused = networks.connect(&other.path()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
    // Nobody says that the guest has left it.
    networks.disconnect(connection).unwrap();
    let refused = networks.connect(&other.path()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
    networks.give_back(0);
    networks.connect(&other.path()).unwrap().unwrap();
}

#[test]
fn what_a_killed_server_leaves_is_no_obstacle() {
    let Some(pod) = Pod::new() else { return };
    let state = || {
        let (networks, taps) = Networks::make(1).unwrap();
        let _connection = networks.connect(&pod.path()).unwrap().unwrap();
        let state = pod.state();
        // The device goes with its last descriptor.
        drop(taps);
        state
    };
    assert_eq!(state(), state());
}

#[test]
fn only_a_pods_own_namespace_with_an_address_is_connected() {
    let Some(pod) = Pod::new() else { return };
    let (networks, _taps) = Networks::make(1).unwrap();
    let own = networks.connect(Path::new("/proc/thread-self/ns/net")).unwrap_err();
    assert!(own.to_string().contains("the host's own"), "{own}");
    assert!(networks.connect(Path::new("/proc/self/ns/none")).is_err());
    pod.said("ip address flush dev outside");
    assert!(networks.connect(&pod.path()).unwrap().is_none());
}

#[tokio::test]
async fn traffic_is_what_a_pod_may_have_to_do_with() {
    let Some((pod, networks, connection, guest)) = connected() else { return };
    let traffic = Traffic::of(connection.listen().unwrap()).unwrap();
    let comes_soon = async || timeout(Duration::from_millis(100), traffic.seen()).await.is_ok();
    assert!(!traffic.take().unwrap() && !comes_soon().await);

    let listener = guest.run(|| TcpListener::bind((HOST, 80))).unwrap();
    let mut client = pod.outside(|| TcpStream::connect((HOST, 80))).unwrap();
    let mut server = listener.accept().unwrap().0;
    traffic.seen().await.unwrap();
    assert!(traffic.take().unwrap());
    assert!(!traffic.take().unwrap() && !comes_soon().await);
    for _ in 0..3 {
        client.write_all(b"?").unwrap();
        server.read_exact(&mut [0]).unwrap();
        assert!(traffic.take().unwrap());
        server.write_all(b"!").unwrap();
        client.read_exact(&mut [0]).unwrap();
        assert!(comes_soon().await);
        assert!(!traffic.take().unwrap() && !comes_soon().await);
    }

    // What only keeps the connection open is none.
    let second = Duration::from_secs(1);
    let keep = TcpKeepalive::new().with_time(second).with_interval(second);
    SockRef::from(&client).set_tcp_keepalive(&keep).unwrap();
    let received = || {
        let counters = guest.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp")).unwrap();
        counters.lines().filter(|line| line.starts_with("Tcp:")).collect::<String>()
    };
    let before = received();
    for _ in 0..100 {
        if received() != before {
            break;
        }
        sleep(second / 10).await;
    }
    assert_ne!(received(), before, "no probe has come");
    assert!(!traffic.take().unwrap());

    drop(client);
    server.read_to_end(&mut Vec::new()).unwrap();
    assert!(traffic.take().unwrap());
    let socket = pod.outside(|| UdpSocket::bind((PUBLIC, 0))).unwrap();
    let to = socket.local_addr().unwrap();
    guest.run(|| UdpSocket::bind((HOST, 0))?.send_to(b"datagram", to)).unwrap();
    socket.recv_from(&mut [0; 16]).unwrap();
    assert!(traffic.take().unwrap());

    networks.disconnect(connection).unwrap();
    let gone = timeout(second, traffic.seen()).await.unwrap();
    assert!(gone.is_err() && !traffic.take().unwrap_or(false));
}
