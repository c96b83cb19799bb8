//! A soak of `squeezy serve`: a mixed load from persistent clients, faults in an order determined
//! by a seed, and at the end nothing lost, nothing leaked and all memory back.
//!
//! `SQUEEZY_SOAK_SECONDS` is its length; without it, each fault occurs once. The seed is printed;
//! `SQUEEZY_SOAK_SEED` repeats its order. `SQUEEZY_SOAK_POLICY` is the node's policy, and
//! `SQUEEZY_SOAK_MEMORY_BACKEND` its memory backend.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../../scripts/disk.rs"]
mod disk;

mod calls;
mod changes;
mod clients;
mod exchange;
mod faults;
mod footprint;
mod host;
mod ledger;
mod provoke;
mod world;

use calls::What;
use changes::{change_all_the_time, make_sequence};
use clients::call_all_the_time;
use common::number;
use faults::Fault;
use footprint::Footprint;
use host::{ACTIVATIONS, Host};
use ledger::Kind;
use squeezy_load::Random;
use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime},
};
use world::World;

/// Clients that call continuously: more than there are instances.
const CLIENTS: u64 = 4;

struct Soak {
    host: Host,
    world: Arc<World>,
    random: Random,
    clients: Vec<JoinHandle<()>>,
    /// How long after each fault the next page took.
    taken: BTreeMap<Fault, Vec<Duration>>,
}

#[test]
fn nothing_is_lost_and_nothing_leaks_whatever_goes_wrong() {
    let Some(build) = common::build() else { return };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seed = number("SQUEEZY_SOAK_SEED").unwrap_or(now.as_secs() % 1_000_000);
    let length = Duration::from_secs(number("SQUEEZY_SOAK_SECONDS").unwrap_or(0));
    println!("seed {seed}: SQUEEZY_SOAK_SEED={seed} repeats the order");

    let begin = Instant::now();
    let mut soak = Soak::start(&build, seed);
    let warm = soak.warm_up();
    soak.load(seed);
    loop {
        soak.round();
        let world = soak.world.clone();
        let _silence = world.silence();
        soak.settle(&warm);
        if begin.elapsed() >= length {
            world.end();
            break;
        }
    }
    soak.end();
}

impl Soak {
    fn start(build: &Path, seed: u64) -> Self {
        let world = Arc::new(World::new());
        let mut host = Host::new(build, world.clone());
        host.start();
        make_sequence(&world);
        let random = Random::new(seed);
        Self { host, world, random, clients: Vec::new(), taken: BTreeMap::new() }
    }

    /// Boots the VM and starts the maximum number of instances; returns the footprint after they
    /// have ended.
    fn warm_up(&self) -> Footprint {
        for call in self.call(What::Works, 3) {
            assert_eq!(call.join().unwrap(), Kind::Right, "{:?}", self.world.ledger.problems());
        }
        let warm = self.host.quiet();
        self.world.ledger.say(&format!("warm: {warm}"));
        assert!(warm.plugged_bytes > 0 && warm.plugged_bytes == warm.asked_bytes, "{warm}");
        warm
    }

    /// Has this many clients make a call at once.
    fn call(&self, what: What, clients: u64) -> Vec<JoinHandle<Kind>> {
        let call = |client| {
            let world = self.world.clone();
            std::thread::spawn(move || world.make(what, &mut Random::new(client)))
        };
        (0..clients).map(call).collect()
    }

    /// Starts the clients.
    fn load(&mut self, seed: u64) {
        for client in 0..=CLIENTS {
            let world = self.world.clone();
            let random = Random::new(seed.wrapping_mul(1000) + client);
            self.clients.push(std::thread::spawn(move || match client {
                0 => change_all_the_time(&world, random),
                _ => call_all_the_time(&world, random),
            }));
        }
    }

    /// Provokes each fault once. After each, the next page must be correct.
    fn round(&mut self) {
        let mut faults = Fault::ALL.to_vec();
        self.random.shuffle(&mut faults);
        println!("order: {faults:?}");
        for fault in faults {
            self.world.pause(self.random.gap(Duration::from_secs(1)));
            self.world.ledger.say(&fault.to_string());
            let begin = Instant::now();
            self.provoke(fault);
            self.world.make(What::Page, &mut self.random);
            self.check();
            let taken = begin.elapsed();
            self.taken.entry(fault).or_default().push(taken);
            let so_far = self.world.ledger.so_far();
            self.world
                .ledger
                .say(&format!("    over after {:.1} s; {so_far}", taken.as_secs_f64()));
        }
    }

    /// Stops the load: everything must return to what it was.
    fn settle(&self, warm: &Footprint) {
        // As at the start, there is a VM, and no large result is kept.
        for _ in 0..ACTIVATIONS.div_ceil(3) {
            self.call(What::Page, 3).into_iter().for_each(|call| drop(call.join()));
        }
        self.check();
        let mut last = self.host.quiet();
        // Idle threads exit after a while, and the VM somewhat later.
        let end = Instant::now() + Duration::from_secs(30);
        while !last.is_back_at(warm) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(500));
            last = self.host.footprint();
        }
        assert!(
            last.is_back_at(warm),
            "something has leaked:\n{last}: {:?}\nafter\n{warm}: {:?} at the start",
            last.descriptors,
            warm.descriptors
        );
        self.world.ledger.say(&format!("all is back: {last}"));
    }

    /// Ends everything; nothing may be left.
    fn end(mut self) {
        for client in self.clients.drain(..) {
            client.join().unwrap();
        }
        self.check();
        let empty = self.host.empty();
        assert_eq!((empty.committed_bytes, empty.plugged_bytes), (0, 0), "memory of no VM");
        assert_eq!(self.host.children(), [0; 0], "processes that the daemon has left");
        self.world.ledger.say(&format!("without a VM: {empty}"));
        self.host.stop();
        let right = [
            "actions.json",
            "code",
            "code-drives",
            "key",
            "lock",
            "namespaces.json",
            "pinned",
            "squeezy.db",
        ];
        assert_eq!(self.host.files(), right);
        let log = self.host.log_from(0);
        for complaint in [" internal error: ", "panicked", " disagree: "] {
            let line = log.lines().find(|line| line.contains(complaint));
            assert_eq!(
                line, None,
                "the daemon reports a problem of its own, or with its guest's memory"
            );
        }
        println!("\n{:<34} {:>6}  how they ended\n{}", "calls", "", self.world.ledger.table());
        println!("{:<34} {:>6}  until the next page", "faults", "");
        for (fault, taken) in &self.taken {
            let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
            let [least, most] = [least, most].map(Duration::as_secs_f64);
            println!("{fault:<34} {:>6}  {least:.1} to {most:.1} s", taken.len());
        }
    }

    /// Fails if an outcome is not explained by a fault.
    fn check(&self) {
        let problems = self.world.ledger.problems();
        assert!(problems.is_empty(), "no fault explains:\n{}", problems.join("\n"));
    }
}
