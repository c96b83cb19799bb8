//! The network of instances: what they reach, and what they do not. These tests need `make kernel image`.

mod common;
#[path = "../../../scripts/outside.rs"]
mod outside;
#[path = "../../../scripts/skip.rs"]
mod skip;

use common::{LONG, config, instance, wait_until};
use outside::{HOST, METADATA, Outside, PRIVATE, PUBLIC, serve};
use skip::skip;
use squeezy_protocol::{
    InstanceSpec, NetworkAccess,
    network::{GATEWAY, NETWORK_PREFIX, address},
};
use squeezy_vmm::{
    AgentClient, Vm,
    network::{Network, NetworkCounts, Refusal, Rules, Uplink},
};
use std::{
    io::{Read, Write},
    net::{TcpListener, UdpSocket},
    sync::mpsc,
    time::{Duration, Instant},
};

/// How long an attempt to connect may take, in seconds. Most that are refused are so at once.
const PATIENCE: &str = "10";

fn outbound(id: &str, script: &str) -> InstanceSpec {
    let network = NetworkAccess::Outbound;
    InstanceSpec { network, ..instance(id, &["/bin/sh", "-c", script]) }
}

/// What scripts print when they are done.
const DONE: &str = "\ndone\n";

/// Runs a script in an instance of its own; returns what it prints.
async fn run(vm: &Vm, mut spec: InstanceSpec) -> String {
    let agent = vm.agent().unwrap();
    let script = spec.command.last_mut().unwrap();
    *script = format!("({script}) 2>&1; echo; echo done; sleep 1000");
    agent.start(&spec).await.unwrap();
    let log = until_said(agent, &spec, DONE).await;
    agent.stop(&spec.id, Duration::ZERO).await.unwrap();
    log.trim_end_matches(DONE).to_owned()
}

/// An instance's log as soon as this is in it.
async fn until_said(agent: &AgentClient, spec: &InstanceSpec, text: &str) -> String {
    let said = async {
        loop {
            let log = agent.log(&spec.id).await.unwrap();
            if log.contains(text) {
                return log;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, said).await.expect("a script that ends")
}

/// What an instance prints that greets a server at this address.
async fn greet(vm: &Vm, address: &str, port: u16) -> String {
    let script = format!("echo hello | nc -w {PATIENCE} {address} {port}");
    run(vm, outbound("greeting", &script)).await
}

/// Whether this is what it prints if there is nobody.
fn is_closed(said: &str) -> bool {
    said.contains("can't connect") || said.contains("timed out")
}

/// Runs this test in a network from which only the outside can be reached. There and here is a server at the port.
fn test<F: Future<Output = ()>>(work: impl FnOnce(Outside, u16) -> F) {
    let Some(outside) = Outside::enter() else {
        return skip("no network namespace can be made here");
    };
    let port = serve(0, b"here");
    outside.run(move || serve(port, b"outside")).join().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(work(outside, port));
}

/// How many files this process has open.
fn own_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

async fn boot(network: Option<Network>) -> Vm {
    let mut config = config("network");
    config.network = network.map(Uplink::Judged);
    Vm::start(config).await.unwrap()
}

#[test]
fn an_instance_reaches_what_its_rules_allow_and_nothing_else() {
    test(|_outside, port| async move {
        let before = own_files();
        let vm = boot(Some(Network::default())).await;
        assert_eq!(greet(&vm, PUBLIC, port).await, "outside");
        let gateway = &GATEWAY.to_string();
        for closed in [PRIVATE, METADATA, HOST, gateway, "198.18.0.7", "0.0.0.1", "203.0.113.255"] {
            let said = greet(&vm, closed, port).await;
            assert!(is_closed(&said), "{closed}: {said}");
        }
        let counts = vm.config().network_counters.read();
        assert_eq!(counts.opened, 1, "{counts:?}");
        let count = |refusal| counts.refused[refusal as usize];
        assert!(count(Refusal::Private) >= 1 && count(Refusal::Host) >= 1, "{counts:?}");
        assert!(count(Refusal::Reserved) >= 3, "{counts:?}");
        vm.stop().await.unwrap();
        drop(vm);
        let closed = || wait_until(LONG, || own_files() <= before);
        assert!(tokio::task::block_in_place(closed), "{} files, {before} before", own_files());

        let rules = Rules {
            allow: vec![PRIVATE.parse().unwrap()],
            deny: vec!["0.0.0.0/0".parse().unwrap()],
        };
        let vm = boot(Some(Network { rules, ..Network::default() })).await;
        assert_eq!(greet(&vm, PRIVATE, port).await, "outside");
        let said = greet(&vm, PUBLIC, port).await;
        assert!(is_closed(&said), "{said}");
        vm.stop().await.unwrap();
    });
}

#[test]
fn an_instance_s_datagrams_reach_what_its_rules_allow_and_are_answered() {
    test(|outside, _| async move {
        let (opened, port) = mpsc::channel();
        // Sends whoever asks for a file five bytes, which are all there is.
        outside.run(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            opened.send(socket.local_addr().unwrap().port()).unwrap();
            let mut datagram = [0; 2048];
            while let Ok((_, from)) = socket.recv_from(&mut datagram) {
                if datagram.starts_with(b"\0\x01greeting\0") {
                    socket.send_to(b"\0\x03\0\x01hello", from).unwrap();
                }
            }
        });
        let port = port.recv().unwrap();
        let ask = |address, patience_seconds| {
            let ask = format!("tftp -g -r greeting -l - {address} {port}");
            outbound("asking", &format!("timeout {patience_seconds} {ask}"))
        };
        let vm = boot(Some(Network::default())).await;
        for _ in 0..2 {
            assert_eq!(run(&vm, ask(PUBLIC, 50)).await, "hello");
        }
        for closed in [PRIVATE, METADATA, HOST] {
            let said = run(&vm, ask(closed, 5)).await;
            assert!(!said.contains("hello"), "{closed}: {said}");
        }
        let counts = vm.config().network_counters.read();
        assert_eq!(counts.opened, 2, "{counts:?}");
        let count = |refusal| counts.refused[refusal as usize];
        assert!(count(Refusal::Private) >= 1 && count(Refusal::Host) >= 1, "{counts:?}");
        assert!(count(Refusal::Reserved) >= 1, "{counts:?}");
        vm.stop().await.unwrap();
    });
}

#[test]
fn instances_do_not_reach_each_other() {
    test(|_outside, port| async move {
        let vm = boot(Some(Network::default())).await;
        let agent = vm.agent().unwrap();
        let server = outbound("server", "ip address show dev net0; exec nc -l -p 80 -e echo hello");
        agent.start(&server).await.unwrap();
        let log = until_said(agent, &server, "inet").await;
        let server = address(0).to_string();
        assert!(log.contains(&format!("inet {server}/32")), "{log}");
        let said = greet(&vm, &server, 80).await;
        assert!(is_closed(&said), "{said}");
        // The address of one that has ended is not the next one's.
        let said = run(&vm, outbound("later", "ip address show dev net0")).await;
        assert!(said.contains(&format!("inet {}/32", address(2))), "{said}");
        // Nor can they change that, or listen to each other.
        let script = "ip address add 198.18.1.0/32 dev net0; ip link set net0 promisc on; \
                      ping -c 1 -W 1 198.18.0.2; cat /etc/resolv.conf";
        let said = run(&vm, outbound("spoofing", script)).await;
        assert!(said.matches("not permitted").count() >= 2, "{said}");
        assert!(said.contains("nameserver 198.18.0.3"), "{said}");
        let alone = instance("alone", &["/bin/sh", "-c", "ip address; ls /sys/class/net"]);
        let said = run(&vm, alone).await;
        assert!(!said.contains("net0") && said.contains("lo"), "{said}");
        assert_eq!(greet(&vm, PUBLIC, port).await, "outside");
        vm.stop().await.unwrap();
    });
}

#[test]
fn who_uses_up_the_connections_lacks_them_until_some_end() {
    test(|_outside, port| async move {
        const LIMIT: u32 = 40;
        // What QEMU may open for other things is left to connections, too.
        const MOST: usize = LIMIT as usize + 20;
        let network =
            Network { connections: LIMIT, connections_per_second: 10_000, ..Network::default() };
        let vm = boot(Some(network)).await;
        let files = || std::fs::read_dir(format!("/proc/{}/fd", vm.process_id())).unwrap().count();
        let before = files();
        let greedy = format!(
            "for i in $(seq {}); do nc -w {PATIENCE} {PUBLIC} {port} -e sleep 1000 2>&1 & done; wait",
            MOST + 20
        );
        let greedy = outbound("greedy", &greedy);
        let agent = vm.agent().unwrap();
        agent.start(&greedy).await.unwrap();
        until_said(agent, &greedy, "unreachable").await;
        let said = greet(&vm, PUBLIC, port).await;
        assert!(is_closed(&said) || said.is_empty(), "{said}");
        assert!(files() <= before + MOST, "{} files, {before} before", files());
        agent.stop(&greedy.id, Duration::ZERO).await.unwrap();
        let freed = || wait_until(LONG, || files() < before + MOST / 2);
        assert!(tokio::task::block_in_place(freed), "{} files, {before} before", files());
        assert_eq!(greet(&vm, PUBLIC, port).await, "outside");
        vm.stop().await.unwrap();
    });
}

#[test]
fn a_vm_sends_no_more_than_its_rate_and_not_much_less() {
    const RATE: u64 = 512 << 10;
    const SENDING: Duration = Duration::from_secs(6);
    test(|outside, _| async move {
        let vm = boot(Some(Network { bytes_per_second: RATE, ..Network::default() })).await;
        let (opened, port) = mpsc::channel();
        let counter = outside.run(move || {
            let listener = TcpListener::bind("0.0.0.0:0").unwrap();
            opened.send(listener.local_addr().unwrap().port()).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let (begin, mut block, mut arrived) = (Instant::now(), vec![0; 1 << 16], 0);
            while begin.elapsed() < SENDING {
                let length = stream.read(&mut block).unwrap();
                assert!(length > 0, "it ends early, after {arrived} bytes");
                arrived += length;
            }
            arrived as f64 / begin.elapsed().as_secs_f64()
        });
        let port = port.recv().unwrap();
        let pouring = outbound("pouring", &format!("exec nc {PUBLIC} {port} < /dev/zero"));
        vm.agent().unwrap().start(&pouring).await.unwrap();
        let measured = tokio::task::spawn_blocking(move || counter.join().unwrap()).await.unwrap();
        let part = measured / RATE as f64;
        assert!((0.5..2.0).contains(&part), "{part}");
        vm.stop().await.unwrap();
    });
}

#[test]
fn a_connection_outlasts_a_freeze_and_a_pause() {
    test(|outside, _| async move {
        let vm = boot(Some(Network::default())).await;
        let agent = vm.agent().unwrap();
        let (opened, port) = mpsc::channel();
        let (go, gone) = mpsc::channel();
        let (write, written) = mpsc::channel();
        let server = outside.run(move || {
            let listener = TcpListener::bind("0.0.0.0:0").unwrap();
            opened.send(listener.local_addr().unwrap().port()).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            let mut line = [0; 6];
            stream.read_exact(&mut line).unwrap();
            opened.send(0).unwrap();
            gone.recv().unwrap();
            stream.write_all(b"while you slept\n").unwrap();
            write.send(()).unwrap();
            let mut answer = [0; 16];
            stream.read_exact(&mut answer).unwrap();
            answer
        });
        let talker =
            "echo ready; read line; echo \"heard: $line\" >&2; echo \"$line\"; exec sleep 1000";
        let talker = format!("exec nc {PUBLIC} {} -e sh -c '{talker}'", port.recv().unwrap());
        let talker = outbound("talker", &talker);
        agent.start(&talker).await.unwrap();
        let port = tokio::task::spawn_blocking(move || port.recv()).await.unwrap();
        assert_eq!(port, Ok(0), "it is connected");
        agent.freeze(&talker.id).await.unwrap();
        vm.pause().await.unwrap();
        go.send(()).unwrap();
        written.recv().unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        vm.resume().await.unwrap();
        assert_eq!(agent.log(&talker.id).await.unwrap(), "", "it is frozen");
        agent.thaw(&talker.id).await.unwrap();
        until_said(agent, &talker, "heard: while you slept").await;
        // And it is heard itself.
        let answer = tokio::task::spawn_blocking(move || server.join().unwrap()).await.unwrap();
        assert_eq!(&answer, b"while you slept\n");
        vm.stop().await.unwrap();
    });
}

#[test]
fn a_tap_device_leads_where_the_operator_wants_and_to_one_vm() {
    test(|_outside, port| async move {
        if !std::fs::exists("/dev/net/tun").unwrap() {
            return skip("there is no /dev/net/tun");
        }
        let on_tap = || {
            let mut config = config("tap");
            config.network = Some(Uplink::Tap("tap0".parse().unwrap()));
            config
        };
        let error = Vm::start(on_tap()).await.err().unwrap().to_string();
        assert!(error.contains("there is no network device tap0: make it with"), "{error}");
        for arguments in [
            "tuntap add dev tap0 mode tap".to_owned(),
            format!("address add {GATEWAY}/{NETWORK_PREFIX} dev tap0"),
            "link set tap0 up".to_owned(),
        ] {
            let made = std::process::Command::new("ip").args(arguments.split(' ')).status();
            assert!(made.unwrap().success(), "ip {arguments}");
        }
        let vm = Vm::start(on_tap()).await.unwrap();
        // The host itself: nothing is judged, and nothing counted.
        assert_eq!(greet(&vm, &GATEWAY.to_string(), port).await, "here");
        assert_eq!(greet(&vm, HOST, port).await, "here");
        assert_eq!(vm.config().network_counters.read(), NetworkCounts::default());
        let error = Vm::start(on_tap()).await.err().unwrap().to_string();
        assert!(error.contains("the tap device tap0 is in use"), "{error}");
        vm.stop().await.unwrap();
    });
}

#[test]
fn a_vm_without_a_network_has_none_for_its_instances() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let vm = boot(None).await;
        let error = vm.agent().unwrap().start(&outbound("a", "true")).await.unwrap_err();
        assert!(error.to_string().contains("this VM has no network"), "{error}");
        vm.stop().await.unwrap();
    });
}
