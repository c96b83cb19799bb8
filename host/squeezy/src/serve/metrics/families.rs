//! Declares all metrics: names, labels and help texts.
//!
//! The doc comment of a metric is the help text that Prometheus shows.

use super::{
    labels::{
        Build, Direction, Name, Of, OfNamespace, OfReason, OfResize, OfStart, OfState, OfWait,
        Start, State,
    },
    reason::{ENDED, NOT_RESIZED, REFUSED},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
        info::Info,
    },
    registry::{Registry, Unit},
};
use squeezy_node::WaitedFor;
use squeezy_vmm::network::Refusal;
use std::{fmt::Debug, hash::Hash, sync::atomic::AtomicU64};

/// Counters, by labels.
type Counters<L> = Family<L, Counter>;
/// Counters of time, by labels.
type CountersOfTime<L> = Family<L, Counter<f64, AtomicU64>>;
/// Gauges, by labels.
type Gauges<L> = Family<L, Gauge>;
/// Histograms of durations, by labels.
type Times<L> = Family<L, Histogram, Seconds>;
/// Histograms of durations, by function.
pub type TimesOf = Times<Of>;

macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $metric:ident: $kind:ty $(, $unit:ident)?;)+) => {
        /// All metrics.
        pub struct Families {
            $($(#[doc = $help])+ pub $metric: $kind,)+
        }

        impl Families {
            /// Name, kind, unit and help text of each metric.
            #[cfg(test)]
            pub const DECLARED: &[(&str, &str, &str, &str)] = &[$((
                stringify!($metric),
                stringify!($kind),
                concat!("" $(, stringify!($unit))?),
                concat!($($help),+),
            )),+];

            /// Registers all metrics; their names come from the fields and units.
            pub fn new(registry: &mut Registry) -> Self {
                let info = Info::new(Build { version: env!("CARGO_PKG_VERSION") });
                registry.register("build", "The version of Squeezy", info);
                $(
                    let $metric = <$kind as Make>::make();
                    // The registry appends a full stop.
                    let help = concat!($($help),+).trim().trim_end_matches('.');
                    metrics!(@ registry, stringify!($metric), help, $metric $(, $unit)?);
                )+
                Self { $($metric),+ }
            }
        }
    };
    (@ $registry:ident, $name:expr, $help:ident, $metric:ident) => {
        $registry.register($name, $help, $metric.clone())
    };
    (@ $registry:ident, $name:expr, $help:ident, $metric:ident, $unit:ident) => {
        $registry.register_with_unit($name, $help, Unit::$unit, $metric.clone())
    };
}

metrics! {
    /// Memory budget of all VMs and instances: `memory` of the configuration.
    memory_limit: Gauge, Bytes;
    /// The part of the budget that is committed to running VMs and living instances.
    memory_committed: Gauge, Bytes;
    /// Memory that the host has requested the guests of a function's VM to have, including base memory.
    asked: Gauges<Of>, Bytes;
    /// Memory that these guests have.
    plugged: Gauges<Of>, Bytes;
    /// Host memory behind it.
    resident: Gauges<Of>, Bytes;
    /// Memory of ended instances that guests have given back, counted at each instance's size.
    reclaimed: Counters<Of>, Bytes;
    /// Memory that living, frozen instances have given back, as the host measured it before and after.
    squeezed: Counters<Of>, Bytes;
    /// Free memory that the host has taken by itself, without the guest: when an instance was frozen or had ended, every few seconds, and when a VM was paused.
    taken: Counters<Of>, Bytes;
    /// How long it took the host when an instance was frozen or had ended.
    take: Times<Of>, Seconds;
    /// Memory of frozen instances that the host has taken while their VM was paused. They end when it runs again.
    condemned: Counters<Of>, Bytes;
    /// How long it took the host for an instance.
    condemn: Times<Of>, Seconds;
    /// How long the host took for all that it has taken by itself, free and condemned.
    taking: CountersOfTime<Of>, Seconds;
    /// Frozen instances that could not be made to give memory back.
    squeezes_failed: Counters<Of>;
    /// Time from asking a frozen instance to give memory back until it has.
    squeeze: Times<Of>, Seconds;
    /// Instances by state: starting, idle, frozen, condemned (its memory is gone, and it is ended when its paused VM runs again), busy, stopping (its processes end), reclaiming (its memory is being unplugged) or stranded (the guest has not given its memory back in time).
    instances: Gauges<OfState>;
    /// Instances that are to be kept up without calls, by the annotation `minimum-instances` or their definition, while calls leave memory for them.
    instances_minimum: Gauges<Of>;
    /// Calls that wait for an instance.
    calls_waiting: Gauges<Of>;
    /// VMs by state: booting, up, paused or ending.
    vms: Gauges<State>;
    /// VMs that did not report their memory in time for this scrape; their series are absent.
    vms_silent: Gauge;
    /// The guests' partitions by state (docs/abi.md). A draining or quarantined one holds memory that nobody uses.
    partitions: Gauges<OfState>;
    /// Calls that an instance has taken, by start: warm, it existed; cold, it was started meanwhile; recreated, likewise, and an earlier instance of the function had ended since the daemon started.
    starts: Counters<OfStart>;
    /// Calls that an instance has taken, by what they waited for, as in activations and `squeezy run`: nothing (an instance was idle), thaw, busy (all were at work), start or boot.
    calls_taken: Counters<OfWait>;
    /// Connections that the instances of a function's VM have opened, and for UDP, addresses that they have sent to.
    connections_opened: Counters<Of>;
    /// Those that they were not allowed, by reason: reserved (nobody may reach it), host, private, denied or too_many.
    connections_refused: Counters<OfReason>;
    /// What they have sent by TCP, as far as it was seen (a connection is looked at five times a second, and not when it is closed), and in datagrams.
    network_sent: Counters<Of>, Bytes;
    /// What they have received by TCP, as far as it was seen.
    network_received: Counters<Of>, Bytes;
    /// Datagrams of theirs that were dropped, because the VM sent more than its network_rate.
    datagrams_dropped: Counters<Of>;
    /// Calls that an instance has taken and not answered.
    calls_failed: Counters<Of>;
    /// Calls that no instance has taken, by reason; when an action is changed, its successor takes those that are retired.
    calls_refused: Counters<OfReason>;
    /// How long calls waited for the instance that took them.
    queue: Times<Of>, Seconds;
    /// How long new instances took to answer /init, from the execution of their command.
    init: Times<Of>, Seconds;
    /// How long instances took to answer calls.
    run: Times<Of>, Seconds;
    /// Time from requesting a plug until the guest has the memory; only successful plugs.
    plug: Times<Of>, Seconds;
    /// Time from requesting an unplug until the guest has given the memory back; only successful unplugs.
    unplug: Times<Of>, Seconds;
    /// Plugs and unplugs that were not done in time, by direction and reason. Reasons of an unplug: assigned, draining or quarantined partitions, guest (something else in the guest), vm (the VM has ended) or other.
    resizes_refused: Counters<OfResize>;
    /// Instances that could not be started.
    starts_failed: Counters<Of>;
    /// Instances that have ended, by reason. Told to stop: keep_alive_over, evicted (others need the memory), broken, retired, draining or overdrawn (they, or their paused VM, held more than they may); otherwise: died or vm_ended.
    instances_ended: Counters<OfReason>;
    /// Calls that have begun, by namespace.
    namespace_calls: Counters<OfNamespace>;
    /// Memory that was promised to the instances of a namespace, times the time for which it was, sampled each second.
    namespace_promised_byte: Counters<OfNamespace>, Seconds;
    /// Memory that the VMs of a namespace took of the host, times the time for which they did, sampled each second.
    namespace_occupied_byte: Counters<OfNamespace>, Seconds;
    /// How nice the VMs of a namespace are, from 0 to 19: more than 0 while processors are short and it uses more than its part of them.
    namespace_niceness: Gauges<OfNamespace>;
    /// Time from the start of a VM's boot until it takes instances.
    vm_boot: Histogram, Seconds;
    /// Activations, and starts of calls, that are in memory and not in the database yet.
    activations_unwritten: Gauge;
    /// 1 while activations cannot be written to the database, as when the disk is full; otherwise 0.
    activations_unwritable: Gauge;
    /// Activations whose result and logs could neither be written nor kept in memory.
    activations_lost: Counter;
    /// Spans that the collector has taken.
    spans_sent: Counter;
    /// Spans that the collector has not taken, or that were too many to wait for it.
    spans_dropped: Counter;
    /// Requests to the collector that it has not answered, or not as it should.
    exports_failed: Counter;
}

impl Families {
    /// Initializes the series that every function has to zero, so that their first increase is
    /// visible.
    pub fn expect(&self, function: &Name) {
        let of = Of { function: function.clone() };
        for counters in self.counted() {
            drop(counters.get_or_create(&of));
        }
        for times in self.timed() {
            drop(times.get_or_create(&of));
        }
        drop(self.taking.get_or_create(&of));
        for start in Start::ALL {
            let labels = OfStart { function: function.clone(), start };
            drop(self.starts.get_or_create(&labels));
        }
        for waited_for in WaitedFor::ALL {
            let labels = OfWait { function: function.clone(), waited_for: waited_for.name() };
            drop(self.calls_taken.get_or_create(&labels));
        }
    }

    fn counted(&self) -> [&Counters<Of>; 7] {
        let Self { reclaimed, squeezed, taken, condemned, .. } = self;
        let Self { calls_failed, starts_failed, squeezes_failed, .. } = self;
        [reclaimed, squeezed, taken, condemned, calls_failed, starts_failed, squeezes_failed]
    }

    fn timed(&self) -> [&TimesOf; 8] {
        let Self { queue, init, run, plug, unplug, squeeze, take, condemn, .. } = self;
        [queue, init, run, plug, unplug, squeeze, take, condemn]
    }

    /// Removes the series of a namespace.
    pub fn forget_namespace(&self, namespace: &OfNamespace) {
        let Self { namespace_calls, namespace_promised_byte, namespace_occupied_byte, .. } = self;
        for counters in [namespace_calls, namespace_promised_byte, namespace_occupied_byte] {
            counters.remove(namespace);
        }
        self.namespace_niceness.remove(namespace);
    }

    /// Removes the series of a function.
    pub fn forget(&self, function: &Name) {
        let of = Of { function: function.clone() };
        for counters in self.counted() {
            counters.remove(&of);
        }
        for times in self.timed() {
            times.remove(&of);
        }
        let Self { network_sent, network_received, connections_opened, datagrams_dropped, .. } =
            self;
        for counters in [network_sent, network_received, connections_opened, datagrams_dropped] {
            counters.remove(&of);
        }
        for refusal in Refusal::ALL {
            let labels = OfReason { function: function.clone(), reason: refusal.name() };
            self.connections_refused.remove(&labels);
        }
        self.taking.remove(&of);
        for start in Start::ALL {
            self.starts.remove(&OfStart { function: function.clone(), start });
        }
        for waited_for in WaitedFor::ALL {
            let labels = OfWait { function: function.clone(), waited_for: waited_for.name() };
            self.calls_taken.remove(&labels);
        }
        for (counters, reasons) in
            [(&self.calls_refused, &REFUSED[..]), (&self.instances_ended, &ENDED[..])]
        {
            for reason in reasons {
                counters.remove(&OfReason { function: function.clone(), reason });
            }
        }
        for direction in [Direction::Plug, Direction::Unplug] {
            for reason in NOT_RESIZED {
                let labels = OfResize { function: function.clone(), direction, reason };
                self.resizes_refused.remove(&labels);
            }
        }
    }
}

/// The initial value of a metric.
trait Make {
    fn make() -> Self;
}

impl Make for Gauge {
    fn make() -> Self {
        Self::default()
    }
}

impl Make for Counter {
    fn make() -> Self {
        Self::default()
    }
}

impl Make for Histogram {
    fn make() -> Self {
        Seconds.new_metric()
    }
}

impl<L: Labels> Make for Counters<L> {
    fn make() -> Self {
        Self::default()
    }
}

impl<L: Labels> Make for CountersOfTime<L> {
    fn make() -> Self {
        Self::default()
    }
}

impl<L: Labels> Make for Gauges<L> {
    fn make() -> Self {
        Self::default()
    }
}

impl<L: Labels> Make for Times<L> {
    fn make() -> Self {
        Self::new_with_constructor(Seconds)
    }
}

/// A set of labels.
trait Labels: EncodeLabelSet + Clone + Debug + Eq + Hash + Send + Sync + 'static {}

impl<L: EncodeLabelSet + Clone + Debug + Eq + Hash + Send + Sync + 'static> Labels for L {}

/// Makes histograms of durations: unplugs take fractions of a millisecond, emulated cold starts a
/// minute.
#[derive(Clone, Copy, Debug)]
pub struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new([
            0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
            30.0, 60.0,
        ])
    }
}
