//! A scripted sequence of events, and the resulting metrics as Prometheus would parse them.

use super::{scrape::set, *};
use crate::serve::failed_call;
use bytes::Bytes;
use http::Response;
use squeezy_node::{
    Answer, CallError, NodeEvent, NodeStatus, ResizeOutcome, StartTimes, WaitedFor,
};
use squeezy_protocol::{Partition, PartitionNumber, PartitionState};
use squeezy_scaler::{
    Counts, FunctionIndex, InstanceNumber, Moment, RejectReason, StopReason, VmIndex, VmState,
};
use squeezy_store::Totals;
use squeezy_vmm::{MemoryUse, Taken, VmError, network::NetworkCounts};
use std::{collections::BTreeMap, time::Duration};

const F: FunctionIndex = FunctionIndex(7);
const INSTANCE_BYTES: u64 = 256 << 20;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

struct Scripted {
    watch: Watch,
}

impl Scripted {
    fn new() -> Self {
        let watch = Watch::new(4 << 30);
        let known = Known { name: Name("f".into()), instance_bytes: INSTANCE_BYTES };
        watch.names.set(Box::new(move || BTreeMap::from([(F, known.clone())])));
        Self { watch }
    }

    fn tell(&self, at: u64, event: NodeEvent<'_>) {
        self.watch.see(Moment(ms(at)), &event);
    }

    fn start(&self, at: u64, instance: u64) {
        let (instance, function) = (InstanceNumber(instance), F);
        self.tell(at, NodeEvent::Starting { instance, function });
        let outcome = ResizeOutcome {
            latency: Some(ms(4)),
            resident_drop_bytes: 0,
            taken: None,
            error: None,
        };
        let plugged = NodeEvent::Plugged { instance, function, took: ms(5), outcome: &outcome };
        self.tell(at + 5, plugged);
        let times = StartTimes { spawn: ms(10), init: ms(300) };
        self.tell(at + 310, NodeEvent::Started { instance, function, result: Ok(times) });
    }

    fn answer(&self, at: u64, instance: u64, waited: u64, cold: bool) {
        let answer = Answer {
            response: Response::new(Bytes::new()),
            waited: ms(waited),
            waited_for: if cold { WaitedFor::Start } else { WaitedFor::Nothing },
            took: ms(20),
            cold: cold.then_some(ms(300)),
            logs: Vec::new(),
        };
        let instance = Some(InstanceNumber(instance));
        self.call(at, instance, &Ok(answer));
    }

    fn call(&self, at: u64, instance: Option<InstanceNumber>, result: &Result<Answer, CallError>) {
        let (function, came, trace) = (F, Moment::START, None);
        self.tell(at, NodeEvent::Called { function, instance, came, trace, result });
    }

    fn end(&self, at: u64, instance: u64, error: Option<VmError>) {
        let (instance, function) = (InstanceNumber(instance), F);
        let reason = StopReason::KeepAliveOver;
        self.tell(at, NodeEvent::Stopping { instance, function, reason });
        let taken =
            Some(Taken { bytes: 90 << 20, area_bytes: 90 << 20, took: ms(1), discarding: ms(1) });
        let resident_drop_bytes = 100 << 20;
        let outcome = ResizeOutcome { latency: Some(ms(2)), resident_drop_bytes, taken, error };
        let (asked, stop) = (Moment(ms(at + 50)), Some(ms(50)));
        let outcome = &outcome;
        self.tell(at + 53, NodeEvent::Reclaimed { instance, function, asked, stop, outcome });
    }

    fn read(&self) -> BTreeMap<String, f64> {
        parse(&self.watch.metrics.text())
    }
}

/// Parses the text as Prometheus does, and checks its rules: every series has a type and a help
/// text that is a sentence, and nothing appears twice.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let (mut types, mut helps, mut series) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let text = text.strip_suffix("# EOF\n").expect("it ends with its end");
    for line in text.lines() {
        if let Some(line) = line.strip_prefix("# TYPE ") {
            let (name, kind) = line.split_once(' ').unwrap();
            assert_eq!(types.insert(name.to_owned(), kind.to_owned()), None, "{line}");
        } else if let Some(line) = line.strip_prefix("# HELP ") {
            let (name, help) = line.split_once(' ').unwrap();
            assert!(help.len() > 15 && help.ends_with('.') && !help.ends_with(".."), "{line}");
            assert_eq!(helps.insert(name.to_owned(), help.to_owned()), None, "{line}");
        } else if let Some(line) = line.strip_prefix("# UNIT ") {
            let (name, unit) = line.split_once(' ').unwrap();
            assert!(name.ends_with(unit), "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let family = name.split('{').next().unwrap();
            let suffixes = ["", "_total", "_info", "_bucket", "_sum", "_count"];
            let mut bare = suffixes.iter().filter_map(|suffix| family.strip_suffix(suffix));
            let family = bare.find(|bare| types.contains_key(*bare));
            let family = family.unwrap_or_else(|| panic!("no type: {line}"));
            assert!(helps.contains_key(family), "no help: {line}");
            let counts_up = types[family] == "counter";
            assert_eq!(counts_up, name.split('{').next().unwrap().ends_with("_total"), "{line}");
            assert_eq!(series.insert(name.to_owned(), value.parse().unwrap()), None, "{line}");
        }
    }
    series
}

#[test]
fn a_day_of_a_node_gives_the_right_numbers() {
    let node = Scripted::new();
    node.start(0, 0);
    node.answer(400, 0, 330, true);
    node.answer(500, 0, 0, false);
    node.end(1000, 0, None);
    // The same function again, and a call that fails because its VM ends.
    node.start(2000, 1);
    node.answer(2400, 1, 330, true);
    let (instance, failed) = (InstanceNumber(1), Err(failed_call("")));
    node.call(2500, Some(instance), &failed);
    let (function, freed_bytes, took) = (F, 5, ms(3));
    node.tell(2500, NodeEvent::Condemned { instance, function, freed_bytes, took });
    node.tell(2500, NodeEvent::Lost { instance, function });
    let refused = Err(CallError::Rejected(RejectReason::QueueFull));
    node.call(2600, None, &refused);
    // A late reclaim.
    let late = VmError::Resize {
        requested: 0,
        plugged: 1,
        after: ms(20_000),
        reason: "blocked by partitions: draining 1".to_owned(),
    };
    node.start(3000, 2);
    node.end(4000, 2, Some(late));
    let read = node.read();
    let resizes =
        "squeezy_resizes_refused_total{function=\"f\",direction=\"unplug\",reason=\"draining\"}";
    assert_eq!(read[resizes], 1.0);
    assert_eq!(read["squeezy_reclaimed_bytes_total{function=\"f\"}"], INSTANCE_BYTES as f64);
    node.tell(9000, NodeEvent::Settled { instance: InstanceNumber(2) });

    let read = node.read();
    for (series, value) in [
        ("starts_total{function=\"f\",start=\"cold\"}", 1.0),
        ("starts_total{function=\"f\",start=\"warm\"}", 2.0),
        ("starts_total{function=\"f\",start=\"recreated\"}", 1.0),
        ("calls_taken_total{function=\"f\",waited_for=\"start\"}", 2.0),
        ("calls_taken_total{function=\"f\",waited_for=\"nothing\"}", 2.0),
        ("calls_failed_total{function=\"f\"}", 1.0),
        ("calls_refused_total{function=\"f\",reason=\"queue_full\"}", 1.0),
        ("reclaimed_bytes_total{function=\"f\"}", 2.0 * INSTANCE_BYTES as f64),
        ("taken_bytes_total{function=\"f\"}", f64::from(180 << 20)),
        ("take_seconds_count{function=\"f\"}", 2.0),
        ("condemned_bytes_total{function=\"f\"}", 5.0),
        ("condemn_seconds_sum{function=\"f\"}", 0.003),
        ("taking_seconds_total{function=\"f\"}", 0.005),
        ("init_seconds_count{function=\"f\"}", 3.0),
        ("run_seconds_count{function=\"f\"}", 3.0),
        ("queue_seconds_count{function=\"f\"}", 4.0),
        ("queue_seconds_bucket{le=\"0.25\",function=\"f\"}", 2.0),
        ("plug_seconds_count{function=\"f\"}", 3.0),
        ("unplug_seconds_count{function=\"f\"}", 1.0),
        ("unplug_seconds_sum{function=\"f\"}", 0.002),
        ("unplug_seconds_bucket{le=\"0.0025\",function=\"f\"}", 1.0),
        ("unplug_seconds_bucket{le=\"0.001\",function=\"f\"}", 0.0),
        ("instances_ended_total{function=\"f\",reason=\"keep_alive_over\"}", 2.0),
        ("instances_ended_total{function=\"f\",reason=\"vm_ended\"}", 1.0),
        ("memory_limit_bytes", (4u64 << 30) as f64),
    ] {
        let series = format!("squeezy_{series}");
        let found = read.get(&series).unwrap_or_else(|| panic!("no {series} in {read:#?}"));
        assert!((found - value).abs() < 1e-9, "{series} is {found}, not {value}");
    }

    node.watch.recent(|recent| {
        let reclaims: Vec<_> = recent.reclaims().collect();
        let [late, first] = reclaims[..] else { panic!("{} reclaims", reclaims.len()) };
        assert!(late.settled && late.error.is_some());
        assert_eq!((first.stop, first.unplug), (Some(ms(50)), Some(ms(2))));
        assert_eq!(first.reason, "keep_alive_over");
        let run = recent.times(&Name("f".into())).total.percentiles(Moment::START).unwrap();
        assert_eq!((run.count, run.p50), (3, ms(350)));
    });
    let Totals { taken_bytes, condemned_bytes, taking, .. } =
        node.watch.metrics.totals(&Name("f".into()));
    assert_eq!((taken_bytes, condemned_bytes, taking), (180 << 20, 5, ms(5)));

    node.watch.forget(&Name("f".into()));
    assert!(!node.watch.metrics.text().contains("function=\"f\""), "{}", node.watch.metrics.text());
}

fn status() -> NodeStatus {
    let vm = VmIndex(3);
    let memory = MemoryUse { asked_bytes: 3, plugged_bytes: 2, ..MemoryUse::default() };
    let memory = MemoryUse { swept_bytes: 7, sweeps_took: ms(250), ..memory };
    let counts = Counts { idle: 3, frozen: 2, busy: 1, queued: 5, minimum: 3, ..Counts::default() };
    let traffic = NetworkCounts { sent_bytes: 8, received_bytes: 9, ..NetworkCounts::default() };
    let networks = NetworkCounts { opened: 4, refused: [0, 0, 2, 0, 0], dropped: 6, ..traffic };
    NodeStatus {
        committed_bytes: 1 << 30,
        tenants: Vec::new(),
        functions: vec![(F, counts)],
        vm_of: BTreeMap::from([(F, vm)]),
        vms: vec![(vm, VmState::Up { empty_since: None }, Some(memory))],
        networks: vec![(vm, networks)],
    }
}

fn partition(number: u16, state: PartitionState) -> Partition {
    let number = PartitionNumber(number);
    Partition { number, state, users: 0, managed_bytes: 0, free_bytes: 0, oom_kills: 0 }
}

#[test]
fn a_scrape_says_how_things_stand_and_forgets_how_they_stood() {
    let node = Scripted::new();
    let states = [PartitionState::Assigned, PartitionState::Assigned, PartitionState::Quarantined];
    let partitions = states.iter().enumerate().map(|(n, &state)| partition(n as u16, state));
    let partitions = vec![(VmIndex(3), Some(partitions.collect()))];
    for _ in 0..2 {
        node.watch.count_sweeps(&status());
        set(&node.watch, &status(), &partitions);
        let read = node.read();
        for (series, value) in [
            ("asked_bytes{function=\"f\"}", 3.0),
            ("plugged_bytes{function=\"f\"}", 2.0),
            ("resident_bytes{function=\"f\"}", 0.0),
            ("taken_bytes_total{function=\"f\"}", 7.0),
            ("taking_seconds_total{function=\"f\"}", 0.25),
            ("connections_opened_total{function=\"f\"}", 4.0),
            ("connections_refused_total{function=\"f\",reason=\"private\"}", 2.0),
            ("datagrams_dropped_total{function=\"f\"}", 6.0),
            ("network_sent_bytes_total{function=\"f\"}", 8.0),
            ("network_received_bytes_total{function=\"f\"}", 9.0),
            ("memory_committed_bytes", (1u64 << 30) as f64),
            ("instances{function=\"f\",state=\"idle\"}", 1.0),
            ("instances{function=\"f\",state=\"frozen\"}", 2.0),
            ("instances{function=\"f\",state=\"stranded\"}", 0.0),
            ("instances_minimum{function=\"f\"}", 3.0),
            ("calls_waiting{function=\"f\"}", 5.0),
            ("vms{state=\"up\"}", 1.0),
            ("vms{state=\"booting\"}", 0.0),
            ("vms_silent", 0.0),
            ("partitions{function=\"f\",state=\"assigned\"}", 2.0),
            ("partitions{function=\"f\",state=\"quarantined\"}", 1.0),
        ] {
            assert_eq!(read.get(&format!("squeezy_{series}")), Some(&value), "{series}");
        }
    }
    // Another function shares the VM; its memory is counted once.
    let mut shared = status();
    shared.functions.push((FunctionIndex(9), Counts::default()));
    shared.vm_of.insert(FunctionIndex(9), VmIndex(3));
    set(&node.watch, &shared, &partitions);
    let read = node.read();
    assert_eq!(read["squeezy_asked_bytes{function=\"f+function-9\"}"], 3.0);
    assert!(!read.contains_key("squeezy_asked_bytes{function=\"f\"}"));
    // The VM hangs: its series are absent, and it is counted as silent.
    let mut status = status();
    status.vms[0].2 = None;
    set(&node.watch, &status, &vec![(VmIndex(3), None)]);
    let read = node.read();
    assert_eq!(read["squeezy_vms_silent"], 1.0);
    assert!(!read.contains_key("squeezy_asked_bytes{function=\"f\"}"));
    assert!(!read.keys().any(|series| series.starts_with("squeezy_partitions")));
}

#[test]
fn what_was_counted_of_a_network_goes_with_its_function() {
    let node = Scripted::new();
    set(&node.watch, &status(), &Vec::new());
    assert!(node.watch.metrics.text().contains("connections_refused_total{function=\"f\""));
    set(&node.watch, &NodeStatus::default(), &Vec::new());
    node.watch.forget(&Name("f".into()));
    let text = node.watch.metrics.text();
    assert!(!text.contains("function=\"f\""), "{text}");
}

/// Counts of things have no unit; everything else has its unit in its name.
#[test]
fn every_metric_has_a_help_text_and_its_unit_and_is_in_the_manual() {
    let manual = include_str!("../../../../../docs/operations.md");
    let counted = [
        "instances",
        "instances_minimum",
        "calls_waiting",
        "vms",
        "vms_silent",
        "partitions",
        "namespace_niceness",
        "activations_unwritten",
        "activations_unwritable",
    ];
    for (name, kind, unit, help) in Families::DECLARED {
        assert!(help.len() > 15 && help.ends_with('.'), "{name}: {help:?}");
        let (unit, counter) = (unit.to_lowercase(), kind.starts_with("Counter"));
        assert!(["", "bytes", "seconds"].contains(&&*unit), "{name}: {unit}");
        let times = ["Times", "Histogram", "CountersOfTime"].iter().any(|of| kind.starts_with(of));
        // Bytes times seconds are no time.
        let is_product = name.ends_with("_byte");
        assert_eq!(times || is_product, unit == "seconds", "{name}");
        assert!(counter || !unit.is_empty() || counted.contains(name), "{name} has no unit");
        assert!(["total", "bytes", "seconds"].iter().all(|word| !name.contains(word)), "{name}");
        let unit = if unit.is_empty() { unit } else { format!("_{unit}") };
        let full = format!("`squeezy_{name}{unit}{}`", if counter { "_total" } else { "" });
        assert!(manual.contains(&full), "docs/operations.md has no {full}");
    }
}
