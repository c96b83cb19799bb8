//! Nodes of a cluster, and the VMs and pods on them.

use super::{measured::Sizes, population::Application};
use crate::experiments::pods;
use std::collections::{BTreeSet, HashMap};

/// How pods get their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Pods of one namespace and size on a node share a VM, each in a partition that is given back with it.
    Partitions,
    /// The same, but no pod looks for a node that has a VM for it.
    PartitionsAnywhere,
    /// Partitions again, but the scheduler counts what it knows: each pod's limit and the overhead of its RuntimeClass.
    PartitionsRequested,
    /// A VM for each pod.
    VmPerPod,
    /// Pods of one namespace and size on a node share a VM that keeps what it has ever had.
    NeverShrinks,
}

impl Way {
    pub(super) const ALL: [Self; 5] = [
        Self::Partitions,
        Self::PartitionsAnywhere,
        Self::PartitionsRequested,
        Self::VmPerPod,
        Self::NeverShrinks,
    ];

    /// As a method of the lines.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Partitions => "squeezy",
            Self::PartitionsAnywhere => "squeezy, no affinity",
            Self::PartitionsRequested => "squeezy, podFixed",
            Self::VmPerPod => "microvm",
            Self::NeverShrinks => "never shrinks",
        }
    }
}

/// What partitions of a VM can have together: the shim has fewer of those that are larger.
const MOST_BYTES: u64 = 64 << 30;
/// The overhead of a pod in packaging/kubernetes/runtimeclass.yaml.
const POD_FIXED_BYTES: u64 = 40 << 20;
/// How long an empty node is paid for: the default of Kubernetes' autoscaler.
const SCALE_DOWN_MINUTES: u32 = 10;

/// The number of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct VmNumber(usize);

/// A VM on a node.
struct Vm {
    node: usize,
    pods: u32,
    /// The most that it has had at once.
    most: u32,
}

/// The nodes of a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nodes {
    pub(super) count: usize,
    /// What pods may have of each one's memory.
    pub(super) bytes: u64,
    /// The most pods that kubelet lets each have.
    pub(super) most_pods: u32,
}

#[derive(Clone, Copy)]
struct Node {
    free_bytes: u64,
    pods: u32,
    /// When it last had one.
    used: Option<u32>,
}

/// A cluster under one way.
pub(super) struct Cluster<'a> {
    way: Way,
    sizes: &'a Sizes,
    node_bytes: u64,
    most_pods: u32,
    nodes: Vec<Node>,
    /// What each node has free that may have one more pod, and its index.
    by_free: BTreeSet<(u64, usize)>,
    vms: Vec<Vm>,
    /// Those that have ended, whose numbers are free.
    ended: Vec<VmNumber>,
    /// The VMs that pods of one namespace and size share.
    shared: HashMap<(u32, u64), Vec<VmNumber>>,
    /// For each application, where its pods are.
    places: Vec<Vec<(VmNumber, u32)>>,
    /// Pods of each application for which there is no room.
    pending: Vec<u32>,
    minute: u32,
    /// What VMs and pods could hold at most, whatever the scheduler counts.
    pub(super) most_bytes: u64,
    /// Pods started, VMs booted for them, and pods that had to wait for room.
    pub(super) started: u64,
    pub(super) booted: u64,
    pub(super) refused: u64,
}

impl<'a> Cluster<'a> {
    pub(super) fn new(way: Way, sizes: &'a Sizes, nodes: Nodes, applications: usize) -> Self {
        let Nodes { count, bytes, most_pods } = nodes;
        Self {
            way,
            sizes,
            node_bytes: bytes,
            most_pods,
            nodes: vec![Node { free_bytes: bytes, pods: 0, used: None }; count],
            by_free: (0..count).map(|node| (bytes, node)).collect(),
            vms: Vec::new(),
            ended: Vec::new(),
            shared: HashMap::new(),
            places: vec![Vec::new(); applications],
            pending: vec![0; applications],
            minute: 0,
            most_bytes: 0,
            started: 0,
            booted: 0,
            refused: 0,
        }
    }

    /// Now it is this minute.
    pub(super) fn pass(&mut self, minute: u32) {
        self.minute = minute;
    }

    /// Nodes that are paid for.
    pub(super) fn nodes(&self) -> u64 {
        let paid = |node: &&Node| {
            node.used.is_some_and(|used| node.pods > 0 || self.minute < used + SCALE_DOWN_MINUTES)
        };
        self.nodes.iter().filter(paid).count() as u64
    }

    /// What the scheduler counts for VMs and pods.
    pub(super) fn promised_bytes(&self) -> u64 {
        self.nodes.iter().map(|node| self.node_bytes - node.free_bytes).sum()
    }

    /// Starts a pod, or leaves it waiting.
    pub(super) fn start(&mut self, index: u32, application: &Application) {
        if !self.place(index as usize, application) {
            self.pending[index as usize] += 1;
            self.refused += 1;
        }
    }

    /// Starts what waits and for which there is room now.
    pub(super) fn retry(&mut self, applications: &[Application]) {
        for (index, application) in applications.iter().enumerate() {
            while self.pending[index] > 0 && self.place(index, application) {
                self.pending[index] -= 1;
            }
        }
    }

    /// Puts a pod on the fullest node that has room for it, if there is one.
    fn place(&mut self, index: usize, application: &Application) -> bool {
        let (vm_bytes, pod_bytes) = self.requests(application);
        let (most_of_vm, most_of_pod) = self.needs(application);
        let fullest = self.fullest(vm_bytes + pod_bytes);
        let there = match self.way {
            Way::VmPerPod => None,
            Way::PartitionsAnywhere => {
                fullest.and_then(|node| self.vm_with_room(application, pod_bytes, Some(node)))
            }
            Way::Partitions | Way::PartitionsRequested | Way::NeverShrinks => {
                self.vm_with_room(application, pod_bytes, None)
            }
        };
        let number = match (there, fullest) {
            (Some(number), _) => {
                let has_it = self.has_kept(&self.vms[number.0]);
                let vm = &mut self.vms[number.0];
                vm.pods += 1;
                vm.most = vm.most.max(vm.pods);
                let node = vm.node;
                self.most_bytes += if has_it { 0 } else { most_of_pod };
                self.take(node, if has_it { 0 } else { pod_bytes });
                number
            }
            (None, Some(node)) => {
                self.most_bytes += most_of_vm + most_of_pod;
                self.take(node, vm_bytes + pod_bytes);
                self.boot(node, application)
            }
            (None, None) => return false,
        };
        let places = &mut self.places[index];
        match places.iter_mut().find(|(there, _)| *there == number) {
            Some((_, pods)) => *pods += 1,
            None => places.push((number, 1)),
        }
        self.started += 1;
        true
    }

    /// Boots a VM with its first pod.
    fn boot(&mut self, node: usize, application: &Application) -> VmNumber {
        let vm = Vm { node, pods: 1, most: 1 };
        let number = match self.ended.pop() {
            Some(number) => {
                self.vms[number.0] = vm;
                number
            }
            None => {
                self.vms.push(vm);
                VmNumber(self.vms.len() - 1)
            }
        };
        self.booted += 1;
        if self.way != Way::VmPerPod {
            self.shared.entry(application.group()).or_default().push(number);
        }
        number
    }

    /// Ends a pod: one of those that have most of their kind beside them, as Kubernetes does.
    pub(super) fn end(&mut self, index: u32, application: &Application) {
        let index = index as usize;
        if self.pending[index] > 0 {
            self.pending[index] -= 1;
            return;
        }
        let (requests, needs) = (self.requests(application), self.needs(application));
        let places = &mut self.places[index];
        let Some(at) = (0..places.len()).max_by_key(|&at| places[at].1) else { return };
        let number = places[at].0;
        places[at].1 -= 1;
        if places[at].1 == 0 {
            places.swap_remove(at);
        }
        let vm = &mut self.vms[number.0];
        vm.pods -= 1;
        let (node, most) = (vm.node, u64::from(vm.most));
        let is_empty = vm.pods == 0;
        if is_empty {
            self.ended.push(number);
            if let Some(shared) = self.shared.get_mut(&application.group()) {
                shared.retain(|other| *other != number);
            }
        }
        let way = self.way;
        let ended = |(vm_bytes, pod_bytes): (u64, u64)| match (way, is_empty) {
            (Way::NeverShrinks, false) => 0,
            (Way::NeverShrinks, true) => vm_bytes + most * pod_bytes,
            (_, false) => pod_bytes,
            (_, true) => vm_bytes + pod_bytes,
        };
        self.most_bytes -= ended(needs);
        self.give_back(node, ended(requests));
    }

    /// What the scheduler counts for a VM, and for each of its pods.
    fn requests(&self, application: &Application) -> (u64, u64) {
        match self.way {
            Way::PartitionsRequested => (0, application.memory_bytes + POD_FIXED_BYTES),
            _ => self.needs(application),
        }
    }

    /// What a VM takes, and what each of its pods takes at most.
    fn needs(&self, application: &Application) -> (u64, u64) {
        match self.way {
            Way::VmPerPod => (self.sizes.lone_vm_bytes, application.memory_bytes),
            _ => (self.sizes.vm_bytes, self.sizes.partition_bytes(application.partition_bytes())),
        }
    }

    /// Whether a VM has kept the memory of a pod that has ended.
    fn has_kept(&self, vm: &Vm) -> bool {
        self.way == Way::NeverShrinks && vm.pods < vm.most
    }

    /// The VM for the application, on the fullest node, that has room for a pod.
    fn vm_with_room(
        &self,
        application: &Application,
        pod_bytes: u64,
        on: Option<usize>,
    ) -> Option<VmNumber> {
        let fit = MOST_BYTES / application.partition_bytes();
        let most = u32::try_from(fit).unwrap_or(u32::MAX).min(pods::ROOM);
        let has_room = |number: &&VmNumber| {
            let vm = &self.vms[number.0];
            let node = &self.nodes[vm.node];
            on.is_none_or(|on| vm.node == on)
                && vm.pods < most
                && node.pods < self.most_pods
                && (self.has_kept(vm) || node.free_bytes >= pod_bytes)
        };
        let shared = self.shared.get(&application.group())?.iter().filter(has_room);
        shared.min_by_key(|number| self.nodes[self.vms[number.0].node].free_bytes).copied()
    }

    fn fullest(&self, bytes: u64) -> Option<usize> {
        self.by_free.range((bytes, 0)..).next().map(|&(_, node)| node)
    }

    fn take(&mut self, node: usize, bytes: u64) {
        self.change(node, |node| {
            node.free_bytes -= bytes;
            node.pods += 1;
        });
    }

    fn give_back(&mut self, node: usize, bytes: u64) {
        self.change(node, |node| {
            node.free_bytes += bytes;
            node.pods -= 1;
        });
    }

    fn change(&mut self, index: usize, change: impl FnOnce(&mut Node)) {
        let node = &mut self.nodes[index];
        self.by_free.remove(&(node.free_bytes, index));
        change(node);
        node.used = Some(self.minute);
        if node.pods < self.most_pods {
            self.by_free.insert((node.free_bytes, index));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const SIZES: Sizes = Sizes { vm_bytes: 64 * MIB, lone_vm_bytes: 96 * MIB, pod_bytes: 8 * MIB };

    fn application(mib: u64) -> Application {
        // All of them in one namespace, so that those of one size share VMs.
        Application::of_size(0, mib * MIB)
    }

    fn cluster(way: Way, nodes: usize, node_mib: u64) -> Cluster<'static> {
        let nodes = Nodes { count: nodes, bytes: node_mib * MIB, most_pods: 110 };
        Cluster::new(way, &SIZES, nodes, 2)
    }

    #[test]
    fn what_a_pod_had_is_free_when_it_ends_but_for_a_vm_that_never_shrinks() {
        let app = application(128);
        for (way, with_two, with_one) in [
            (Way::Partitions, 64 + 276, 64 + 138),
            (Way::VmPerPod, 2 * (96 + 128), 96 + 128),
            (Way::NeverShrinks, 64 + 276, 64 + 276),
        ] {
            let mut cluster = cluster(way, 1, 1024);
            let promised = |cluster: &Cluster<'_>| cluster.promised_bytes() / MIB;
            cluster.start(0, &app);
            cluster.start(0, &app);
            assert_eq!(promised(&cluster), with_two, "{way:?}");
            cluster.end(0, &app);
            assert_eq!(promised(&cluster), with_one, "{way:?}");
            cluster.start(0, &app);
            assert_eq!(promised(&cluster), with_two, "{way:?}");
            cluster.end(0, &app);
            cluster.end(0, &app);
            assert_eq!(promised(&cluster), 0, "{way:?}");
        }
    }

    #[test]
    fn a_pod_goes_to_its_applications_vm_or_to_the_fullest_node() {
        let (small, large) = (application(128), application(512));
        for (way, booted) in
            [(Way::Partitions, 2), (Way::PartitionsAnywhere, 3), (Way::VmPerPod, 3)]
        {
            let mut cluster = cluster(way, 2, 2048);
            cluster.start(0, &small);
            // For one more pod, the fullest node is that of the large one.
            cluster.by_free.clear();
            cluster.nodes[1].free_bytes = 1024 * MIB;
            cluster.by_free.extend(cluster.nodes.iter().map(|node| node.free_bytes).zip(0..));
            cluster.start(1, &large);
            cluster.start(0, &small);
            assert_eq!(cluster.booted, booted, "{way:?}");
            assert_eq!(cluster.nodes[1].pods, u32::from(way != Way::Partitions) + 1, "{way:?}");
        }
    }

    #[test]
    fn a_vm_has_room_for_as_many_pods_as_with_the_shim() {
        for (mib, most) in [(128, 32), (2048, 32), (4096, 16)] {
            let app = application(mib);
            let mut cluster = cluster(Way::Partitions, 1, 256 << 10);
            (0..most).for_each(|_| cluster.start(0, &app));
            assert_eq!(cluster.booted, 1, "{mib} MiB");
            cluster.start(0, &app);
            assert_eq!(cluster.booted, 2, "{mib} MiB");
        }
    }

    #[test]
    fn a_node_has_no_more_pods_than_kubelet_lets_it_have() {
        let app = application(128);
        for way in Way::ALL {
            let nodes = Nodes { count: 2, bytes: 4096 * MIB, most_pods: 3 };
            let mut cluster = Cluster::new(way, &SIZES, nodes, 1);
            (0..7).for_each(|_| cluster.start(0, &app));
            assert_eq!((cluster.started, cluster.refused), (6, 1), "{way:?}");
            assert!(cluster.nodes.iter().all(|node| node.pods == 3), "{way:?}");
            // The first to go is the one that waits.
            cluster.end(0, &app);
            cluster.end(0, &app);
            cluster.start(0, &app);
            assert_eq!((cluster.started, cluster.refused), (7, 1), "{way:?}");
        }
    }

    #[test]
    fn what_the_scheduler_counts_is_not_what_vms_and_partitions_take() {
        let app = application(384);
        let mut cluster = cluster(Way::PartitionsRequested, 1, 2048);
        cluster.start(0, &app);
        cluster.start(0, &app);
        assert_eq!(cluster.promised_bytes(), 2 * (384 + 40) * MIB);
        assert_eq!(cluster.most_bytes, (64 + 2 * (512 + 8 + 8)) * MIB);
        cluster.end(0, &app);
        assert_eq!(cluster.promised_bytes(), (384 + 40) * MIB);
        assert_eq!(cluster.most_bytes, (64 + 512 + 8 + 8) * MIB);
    }

    #[test]
    fn who_finds_no_room_waits_for_it() {
        let app = application(512);
        let mut cluster = cluster(Way::VmPerPod, 1, 1024);
        let apps = [application(512), application(512)];
        cluster.start(0, &app);
        cluster.start(1, &app);
        assert_eq!((cluster.started, cluster.refused), (1, 1));
        cluster.end(0, &app);
        cluster.retry(&apps);
        assert_eq!((cluster.started, cluster.refused), (2, 1));
    }

    #[test]
    fn an_empty_node_is_paid_for_until_it_is_taken_away() {
        let app = application(128);
        let mut cluster = cluster(Way::Partitions, 3, 1024);
        cluster.start(0, &app);
        cluster.end(0, &app);
        assert_eq!(cluster.nodes(), 1);
        cluster.pass(SCALE_DOWN_MINUTES);
        assert_eq!(cluster.nodes(), 0);
    }

    proptest! {
        /// However pods come and go: no node has more than it has, and in the end nothing is left.
        #[test]
        fn nothing_is_promised_twice_or_lost(
            steps in proptest::collection::vec((0..2_u32, any::<bool>()), 0..200),
            way in proptest::sample::select(Way::ALL.to_vec()),
        ) {
            let apps = [application(128), application(384)];
            let mut cluster = cluster(way, 3, 2048);
            let mut there = [0_u32; 2];
            for (index, starts) in steps {
                let pods = &mut there[index as usize];
                if starts {
                    *pods += 1;
                    cluster.start(index, &apps[index as usize]);
                } else if *pods > 0 {
                    *pods -= 1;
                    cluster.end(index, &apps[index as usize]);
                }
                cluster.retry(&apps);
                prop_assert!(cluster.promised_bytes() <= 3 * 2048 * MIB);
                if way != Way::PartitionsRequested {
                    prop_assert_eq!(cluster.promised_bytes(), cluster.most_bytes);
                }
                let placed: u32 = cluster.vms.iter().map(|vm| vm.pods).sum();
                let pending: u32 = cluster.pending.iter().sum();
                prop_assert_eq!(placed + pending, there.iter().sum::<u32>());
            }
            for index in 0..2_u32 {
                for _ in 0..there[index as usize] {
                    cluster.end(index, &apps[index as usize]);
                }
            }
            prop_assert_eq!((cluster.promised_bytes(), cluster.most_bytes), (0, 0));
        }
    }
}
