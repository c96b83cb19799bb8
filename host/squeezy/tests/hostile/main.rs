//! A hostile function and a victim in one VM: whatever the hostile one does, every call of the
//! victim is answered correctly, the VM survives, and everything the hostile one took is back after
//! it has ended.
//!
//! The attacks are in C next to this file, each a few lines. `make test` tries those of [`SHORT`],
//! then all at once. `make stress` runs the [`rotation`] for `SQUEEZY_HOSTILE_SECONDS` (an hour by
//! default; each attack at least once, however short that is), and compares with a function that
//! only spins; `SQUEEZY_HOSTILE_SEED` repeats its random choices. `SQUEEZY_HOSTILE_ATTACKS`, a list
//! of names, overrides which attacks either tries.

#[path = "../common/mod.rs"]
mod common;

mod arena;
mod image;
mod rotation;
mod victim;

use arena::Arena;
use common::number;
use image::{CONFINED, SPIN};
use rotation::Step;
use squeezy_load::Random;
use std::{
    iter,
    time::{Duration, Instant, SystemTime},
};
use victim::{Victim, p99};

/// Seconds of each attack in the short form; most end earlier.
const SHORT_SECONDS: u64 = 3;

/// Attacks that once brought down their neighbours, those that `docs/threat-model.md` names, and
/// one of each other kind.
const SHORT: [&str; 32] = [
    "shm_files",
    "tmp_inodes",
    "sparse_file",
    "private_memory",
    "page_tables",
    "fork_bomb",
    "arguments",
    "pipes",
    "netlink",
    "messages",
    "locks",
    "polls",
    "file_cache",
    "areas",
    "epoll_watches",
    "descriptors_in_flight",
    "tcp_buffers",
    "negative_dentries",
    "accept_queue",
    "spliced_zeros",
    "fragments",
    "error_queues",
    "directory_lists",
    "control_data",
    "groups",
    "flow_labels",
    "futex_vectors",
    "locked_image",
    "locks_of_all",
    "orphans",
    "sockets",
    "task_fragments",
];

/// The performance targets.
const TARGETS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/targets.toml"));

/// How long the spinning function runs, and for how long attacks run in between.
const SPIN_TURN: Duration = Duration::from_secs(20);
const OTHER_TURNS: Duration = Duration::from_secs(80);

/// The attacks to try: these, or those that the environment names.
fn chosen(arena: &Arena, usual: &[String]) -> Vec<String> {
    let Ok(names) = std::env::var("SQUEEZY_HOSTILE_ATTACKS") else { return usual.to_vec() };
    let names: Vec<_> = names.split_whitespace().map(str::to_owned).collect();
    for name in &names {
        assert!(arena.attacks.contains(name), "{name} is not one of {:?}", arena.attacks);
    }
    names
}

/// Has a function attack, repeatedly if `again` is set and time is left; returns the victim's calls
/// meanwhile. Afterwards the guest is as it was.
fn turn(arena: &Arena, victim: &Victim, step: &Step, again: bool) -> Vec<Duration> {
    victim.take();
    let (begin, mut count) = (Instant::now(), 0);
    let came = loop {
        let left = step.length.saturating_sub(begin.elapsed()).as_secs_f64().ceil() as u64;
        let came = arena.attack(step.function, &step.attacks, left);
        count += 1;
        assert!(!victim.is_hurt(), "{step}: a call of the victim went wrong");
        if !again || begin.elapsed() >= step.length {
            break came;
        }
    };
    let (calls, length) = (victim.take(), begin.elapsed());
    arena.settle();
    let longest = p99(&calls).unwrap_or_default();
    println!(
        "{step}: {count} times in {length:.1?}, recovered after {:.1?}; {} calls of the victim, P99 {longest:.1?}; \
         {came}",
        begin.elapsed() - length,
        calls.len()
    );
    calls
}

#[test]
fn an_attack_hurts_nobody_else() {
    let Some(arena) = Arena::start() else { return };
    let victim = Victim::start(&arena.daemon);
    let mut calls = Vec::new();
    for mut step in rotation::alone(&chosen(&arena, &SHORT.map(str::to_owned))) {
        step.length = Duration::from_secs(SHORT_SECONDS);
        calls.extend(turn(&arena, &victim, &step, false));
    }
    for mut step in rotation::at_once(&chosen(&arena, &arena.attacks), &mut Random::new(0)) {
        step.length = Duration::from_secs(SHORT_SECONDS);
        calls.extend(turn(&arena, &victim, &step, true));
    }
    victim.end();
    println!("{} calls of the victim, P99 {:.1?}", calls.len(), p99(&calls).unwrap());
    arena.settle_without_instances();
}

#[test]
#[ignore = "takes an hour: run by `make stress`"]
fn all_attacks_hurt_nobody_else() {
    let Some(arena) = Arena::start() else { return };
    let seconds = number("SQUEEZY_HOSTILE_SECONDS").unwrap_or(3600);
    let seed = number("SQUEEZY_HOSTILE_SEED")
        .unwrap_or_else(|| SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs());
    println!("SQUEEZY_HOSTILE_SEED={seed}");
    let (attacks, mut random) = (chosen(&arena, &arena.attacks), Random::new(seed));
    let spin = Step { function: CONFINED, attacks: vec![SPIN.to_owned()], length: SPIN_TURN };
    let victim = Victim::start(&arena.daemon);
    let (mut spun, mut attacked) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    let mut last_spin = None;
    let rounds = iter::repeat_with(|| rotation::round(&attacks, &mut random)).flatten();
    let first = rotation::alone(&attacks).len();
    for (number, step) in rounds.enumerate() {
        if number >= first && begin.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
        // Alternating, so that both are affected equally by other load on the machine.
        if last_spin.is_none_or(|last: Instant| last.elapsed() >= OTHER_TURNS) {
            spun.extend(turn(&arena, &victim, &spin, true));
            last_spin = Some(Instant::now());
            println!("{:.0?}: {}", begin.elapsed(), compared(&spun, &attacked).1);
        }
        attacked.extend(turn(&arena, &victim, &step, true));
    }
    victim.end();
    let (ratio, text) = compared(&spun, &attacked);
    println!("{text}");
    arena.settle_without_instances();
    assert!(ratio <= p99_ratio(), "{text}");
}

/// By what factor attacks may raise the victim's 99th percentile compared with a function that only
/// spins on all the processors it may use.
fn p99_ratio() -> f64 {
    let targets: toml::Table = TARGETS.parse().unwrap();
    let mut targets = targets["target"].as_array().unwrap().iter();
    let named = |target: &&toml::Value| {
        target.get("name").and_then(toml::Value::as_str) == Some("p99-beside-attacks")
    };
    targets.find(named).unwrap()["at_most"].as_float().unwrap()
}

/// How many times as long the victim's calls take next to attacks as next to a spin, also in words.
fn compared(spun: &[Duration], attacked: &[Duration]) -> (f64, String) {
    let [beside_spin, beside_attacks] =
        [spun, attacked].map(|calls| p99(calls).unwrap_or_default());
    let ratio = beside_attacks.as_secs_f64() / beside_spin.as_secs_f64();
    let text = format!(
        "P99 {beside_attacks:.2?} of {} calls next to attacks, {beside_spin:.2?} of {} next to a spin: \
         {ratio:.2} times as long",
        attacked.len(),
        spun.len()
    );
    (ratio, text)
}

/// The names in the short form exist, and every attack in the threat model is tried.
#[test]
fn attacks_have_their_names() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("hostile");
    image::compile(&program);
    let names = image::names(&program);
    for name in SHORT.into_iter().chain([SPIN]) {
        assert!(names.iter().any(|known| known == name), "{name} is not one of {names:?}");
    }
    let told = include_str!("../../../../docs/threat-model.md").lines();
    for told in told.filter_map(|line| Some(line.split_once("hostile `")?.1)) {
        for name in told.split('`').step_by(2) {
            assert!(SHORT.contains(&name), "{name} is documented as tested, but is not tried");
        }
    }
}
