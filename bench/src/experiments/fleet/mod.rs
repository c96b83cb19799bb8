//! A cluster under the population of Azure Functions, whose pods are partitions of VMs or VMs of their own. Simulated.
//! See README.md.

mod cluster;
mod measured;
mod population;
mod report;

use super::pods;
use crate::{
    error::Result,
    harness::{Experiment, Session},
    record::{self, Header, Measured, nanoseconds},
    size,
};
use cluster::{Cluster, Nodes, Way};
use measured::{Sizes, Starts};
use population::{Change, Population};
use serde::{Deserialize, Serialize};
use std::{path::PathBuf, time::Duration};

/// What is varied in the lines of the usual setting.
const PLAIN: &str = "nothing";
/// What Kata's RuntimeClass for QEMU has as the overhead of a pod, which is all that its VM takes beside its limit.
const KATA_OVERHEAD_BYTES: u64 = 160 << 20;
/// The most pods of a node if kubelet's configuration does not say.
const PODS_BY_DEFAULT: u32 = 110;

/// A simulated cluster whose pods are partitions of VMs or VMs of their own.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Draw the applications from a trace in the Azure 2019 format (invocations, with durations.csv and memory.csv
    /// beside it); the default is the distributions published with it
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Seed of all that is drawn; each trial has the next one
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Number of applications
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    applications: Option<u32>,
    /// Number of nodes
    #[arg(long, value_name = "N", default_value = "2000", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: u32,
    /// Memory of a node that pods may have
    #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = size::parse)]
    node_memory: u64,
    /// The most pods that kubelet lets a node have
    #[arg(long, value_name = "N", default_value = "250", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pods_per_node: u32,
    /// How long a pod is kept that is not needed, in minutes
    #[arg(long, value_name = "MINUTES", default_value = "10", value_parser = clap::value_parser!(u32).range(0..=1440))]
    keep_alive: u32,
    /// What limits are multiples of: 1M to 1G
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = parse_limit_step)]
    limit_step: u64,
    /// Applications in a namespace, whose pods share VMs
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    of_namespace: u32,
}

fn parse_limit_step(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        step @ 0x10_0000..=0x4000_0000 => Ok(step),
        _ => Err(format!("limits cannot be multiples of `{text}` here: choose 1M to 1G")),
    }
}

/// A day of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    load: String,
    /// What is other than usual in this line.
    varied: String,
    applications_count: u64,
    /// Applications in a namespace.
    of_namespace_count: u64,
    /// What limits are multiples of.
    limit_step_bytes: u64,
    node_bytes: u64,
    /// The most pods of a node.
    pods_per_node_count: u64,
    keep_alive_seconds: u64,
    /// The most nodes that were needed at a time.
    peak_nodes_count: u64,
    node_hours_count: f64,
    /// Of the memory of these nodes: what the scheduler counted for pods and VMs, what they could hold at most, and
    /// what pods held.
    promised_percent: f64,
    most_percent: f64,
    held_percent: f64,
    peak_pods_count: u64,
    /// Pods started, and VMs booted for them.
    cold_count: u64,
    booted_count: u64,
    /// Pods that had to wait for room.
    waited_count: u64,
    /// The mean time to a pod's first answer, assigned from recorded lines.
    assigned_cold_ns: u64,
}

/// What is simulated.
#[derive(Clone)]
struct Setting {
    varied: &'static str,
    sizes: Sizes,
    nodes: Nodes,
    limit_step: u64,
    keep_minutes: u32,
    of_namespace: u32,
}

impl Experiment for Arguments {
    const NAME: &'static str = "fleet";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let name = pods::Arguments::NAME;
        let path = record::recorded_path(session.files.path(), name);
        let lines: Vec<pods::Line> = record::read(&path, name)?;
        let sizes = Sizes::of(&lines)?;
        let starts = Starts::of(&lines)?;
        // The machine that the costs were measured on, not this one.
        let header = lines[0].header.clone();
        let usual = Setting {
            varied: PLAIN,
            sizes,
            nodes: Nodes {
                count: self.nodes as usize,
                bytes: self.node_memory,
                most_pods: self.pods_per_node,
            },
            limit_step: self.limit_step,
            keep_minutes: self.keep_alive,
            of_namespace: self.of_namespace,
        };
        let settings = usual.varied();
        let trials = session.options.trials_or(1, 5);
        let count = self.applications.unwrap_or(if session.options.quick { 5000 } else { 115_000 });
        session.progress.plan(f64::from(trials) * settings.len() as f64);
        for trial in 0..trials {
            let seed = self.seed + u64::from(trial);
            let mut population = Population::draw(self.trace.as_deref(), count, seed)?;
            for setting in &settings {
                session.progress.say(&format!("trial {}, varied: {}", trial + 1, setting.varied));
                population.divide(setting.of_namespace);
                population.limit(setting.limit_step);
                let changes = population.changes(setting.keep_minutes);
                for way in Way::ALL {
                    let figures = setting.play(way, &population, &changes, &starts);
                    let header = Header {
                        experiment: Self::NAME.to_owned(),
                        method: way.name().to_owned(),
                        trial,
                        ..header.clone()
                    };
                    session.keep(header, figures)?;
                    // For whoever interrupts it.
                    tokio::task::yield_now().await;
                }
                session.progress.advance(1.0);
            }
        }
        Ok(())
    }
}

impl Setting {
    /// This one, and others that show how much each of what is assumed matters.
    fn varied(self) -> Vec<Self> {
        let with = |varied, change: fn(&mut Self)| {
            let mut other = Self { varied, ..self.clone() };
            change(&mut other);
            other
        };
        vec![
            self.clone(),
            with("32 MiB steps", |other| other.limit_step = 32 << 20),
            with("1 MiB steps", |other| other.limit_step = 1 << 20),
            with("kept 1 min", |other| other.keep_minutes = 1),
            with("kept 60 min", |other| other.keep_minutes = 60),
            with("namespace 1", |other| other.of_namespace = 1),
            with("namespace 100", |other| other.of_namespace = 100),
            with("110 pods", |other| other.nodes.most_pods = PODS_BY_DEFAULT),
            with("half, 110 pods", |other| {
                other.nodes.bytes /= 2;
                other.nodes.count *= 2;
                other.nodes.most_pods = PODS_BY_DEFAULT;
            }),
            with("nodes quarter", |other| {
                other.nodes.bytes /= 4;
                other.nodes.count *= 4;
            }),
            with("VMs half", |other| other.sizes = other.sizes.times(0.5)),
            with("VMs double", |other| other.sizes = other.sizes.times(2.0)),
            with("Kata's VM", |other| other.sizes.lone_vm_bytes = KATA_OVERHEAD_BYTES),
        ]
    }

    /// A day of the cluster.
    fn play(
        &self,
        way: Way,
        population: &Population,
        changes: &[Vec<Change>],
        starts: &Starts,
    ) -> Figures {
        let applications = &population.applications;
        let mut cluster = Cluster::new(way, &self.sizes, self.nodes, applications.len());
        let (mut pods, mut held_bytes) = (0_i64, 0_i64);
        let (mut peak_nodes, mut peak_pods) = (0, 0);
        let (mut node_minutes, mut promised, mut most, mut held) = (0, 0.0, 0.0, 0.0);
        for (changes, minute) in changes.iter().zip(0..) {
            cluster.pass(minute);
            for &Change { application: index, pods: change } in changes {
                let application = &applications[index as usize];
                (change..0).for_each(|_| cluster.end(index, application));
                pods += i64::from(change);
                held_bytes += i64::from(change) * application.held_bytes as i64;
            }
            cluster.retry(applications);
            for &Change { application: index, pods: change } in changes {
                (0..change).for_each(|_| cluster.start(index, &applications[index as usize]));
            }
            let nodes = cluster.nodes();
            peak_nodes = nodes.max(peak_nodes);
            peak_pods = pods.max(peak_pods);
            node_minutes += nodes;
            promised += cluster.promised_bytes() as f64;
            most += cluster.most_bytes as f64;
            held += held_bytes as f64;
        }
        let percent = |bytes: f64| 100.0 * bytes / (node_minutes as f64 * self.nodes.bytes as f64);
        let with_vm = if way == Way::VmPerPod { starts.alone } else { starts.with_vm };
        let took = with_vm.as_secs_f64() * cluster.booted as f64
            + starts.in_vm.as_secs_f64() * (cluster.started - cluster.booted) as f64;
        let mean = Duration::from_secs_f64(took / cluster.started.max(1) as f64);
        Figures {
            load: population.source.clone(),
            varied: self.varied.to_owned(),
            applications_count: applications.len() as u64,
            of_namespace_count: self.of_namespace.into(),
            limit_step_bytes: self.limit_step,
            node_bytes: self.nodes.bytes,
            pods_per_node_count: self.nodes.most_pods.into(),
            keep_alive_seconds: u64::from(self.keep_minutes) * 60,
            peak_nodes_count: peak_nodes,
            node_hours_count: node_minutes as f64 / 60.0,
            promised_percent: percent(promised),
            most_percent: percent(most),
            held_percent: percent(held),
            peak_pods_count: peak_pods.unsigned_abs(),
            cold_count: cluster.started,
            booted_count: cluster.booted,
            waited_count: cluster.refused,
            assigned_cold_ns: nanoseconds(mean),
        }
    }
}

/// A record.
type Line = Measured<Figures>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::complaint;

    #[test]
    fn fewer_vms_take_less_memory_and_boot_less_often() {
        let setting = Setting {
            varied: PLAIN,
            sizes: Sizes { vm_bytes: 64 << 20, lone_vm_bytes: 96 << 20, pod_bytes: 8 << 20 },
            nodes: Nodes { count: 100, bytes: 64 << 30, most_pods: 1000 },
            limit_step: 128 << 20,
            keep_minutes: 10,
            of_namespace: 100,
        };
        let second = Duration::from_secs(1);
        let starts = Starts { in_vm: second, with_vm: second * 3, alone: second * 2 };
        let mut population = Population::draw(None, 1000, 1).unwrap();
        population.divide(setting.of_namespace);
        population.limit(setting.limit_step);
        let changes = population.changes(setting.keep_minutes);
        let [ours, _, _, alone, kept] =
            Way::ALL.map(|way| setting.play(way, &population, &changes, &starts));
        assert_eq!(ours.cold_count, alone.cold_count, "what is needed does not depend on the way");
        assert_eq!((alone.booted_count, alone.waited_count), (alone.cold_count, 0));
        assert!(ours.booted_count < alone.booted_count / 2, "{ours:?}");
        assert!(ours.node_hours_count < kept.node_hours_count, "{ours:?}, {kept:?}");
        let header = record::tests::header("fleet", "squeezy", 0);
        assert_eq!(complaint(&Measured { header, figures: ours }, &["node_hours_count"]), None);
    }
}
