//! Machines outside this host, for tests and experiments.

use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::{
    fs::File,
    io::{Read, Write},
    net::TcpListener,
    os::fd::AsFd,
    process::Command,
    sync::mpsc,
    thread::{JoinHandle, spawn},
};

/// The address of this host in the network that it shares with the outside.
pub const HOST: &str = "203.0.113.2";
/// A public address outside, reserved for documentation.
pub const PUBLIC: &str = "203.0.113.1";
/// A private address there.
#[allow(dead_code, reason = "not everybody needs it")]
pub const PRIVATE: &str = "10.9.0.1";
/// The address at which clouds tell their machines secrets.
pub const METADATA: &str = "169.254.169.254";

/// A network namespace that has these addresses, and is connected to that of the thread that made it.
pub struct Outside(File);

impl Outside {
    /// Moves this thread, with all that it starts from now on, to a network of its own, from which only the outside can be
    /// reached. `None` if this user may not do that.
    #[allow(dead_code, reason = "the experiment is in such a network already")]
    pub fn enter() -> Option<Self> {
        leave()?;
        Some(Self::connect())
    }

    /// Makes an outside, and connects the network of this thread, in which there is nothing yet, to it.
    pub fn connect() -> Self {
        let (made, outside) = mpsc::channel();
        let (keep, kept) = mpsc::channel::<()>();
        let holder = spawn(move || {
            leave();
            let id = rustix::thread::gettid().as_raw_nonzero().get();
            made.send((id, File::open("/proc/thread-self/ns/net").unwrap())).unwrap();
            let _ = kept.recv();
        });
        let (id, file) = outside.recv().unwrap();
        ip("link set lo up");
        ip(&format!("link add outside type veth peer name host netns {id}"));
        drop(keep);
        holder.join().unwrap();
        let outside = Self(file);
        outside
            .run(|| {
                ip("link set lo up");
                ip("link set host up");
                for address in [PUBLIC, PRIVATE, METADATA] {
                    ip(&format!("address add {address}/24 dev host"));
                }
            })
            .join()
            .unwrap();
        ip("link set outside up");
        ip(&format!("address add {HOST}/24 dev outside"));
        ip(&format!("route add default via {PUBLIC}"));
        outside
    }

    /// Runs this outside, on a thread of its own.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let outside = self.0.try_clone().unwrap();
        spawn(move || {
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(outside.as_fd(), kind).unwrap();
            work()
        })
    }
}

/// Gives this address, which is one outside, to this host as well.
#[allow(dead_code, reason = "not everybody needs it")]
pub fn move_to_host(address: &str) {
    ip(&format!("address add {address}/32 dev lo"));
}

/// Serves on all addresses of this thread's network, at this port or any, until the process ends; returns the port.
/// Whoever says something is told this.
#[allow(dead_code, reason = "the experiment has a server of its own")]
pub fn serve(port: u16, answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind(("0.0.0.0", port)).unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer);
            });
        }
    });
    port
}

fn leave() -> Option<()> {
    // SAFETY: this flag unshares neither the file table nor memory.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.ok()
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("iproute2");
    assert!(output.status.success(), "ip {arguments}: {output:?}");
}
