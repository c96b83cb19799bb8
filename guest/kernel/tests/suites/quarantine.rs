//! A partition with broken memory is lost, but instances start in the others as long as there are
//! any.

use serde_json::json;
use squeezy_kernel_tests::{BELIEVED_PROCESSOR, MIB, Monitor};
use squeezy_protocol::{
    InstanceSpec, PartitionNumber,
    PartitionState::{self, Absent, Assigned, Quarantined, Unplugged},
};
use squeezy_vmm::{
    AcceleratorChoice, AgentClient, Artifacts, Kernel, Llfree, MemoryBackend, PartitionLayout,
    QemuOptions, Vm, VmConfig, VmError, Vmm,
    mechanism::{Mechanism, MechanismName, Sizing, Slot},
};
use std::{
    fs,
    time::{Duration, Instant},
};
use tokio::net::UnixStream;

const SIZING: Sizing = Sizing { instance_bytes: 128 * MIB, instances: 3, shared_bytes: 64 * MIB };

/// How much of its partition each instance fills.
const USED: &str = "100M";

struct World {
    mechanism: Box<dyn Mechanism>,
    vm: Vm,
    /// The limit of a resize. No resize waits that long because of a held partition.
    limit: Duration,
}

impl World {
    fn agent(&self) -> &AgentClient {
        self.vm.agent().unwrap()
    }

    async fn states(&self) -> Vec<PartitionState> {
        self.agent().partition_states().await.unwrap()
    }

    /// Bytes of partitions that are plugged at the device.
    async fn plugged_bytes(&self) -> u64 {
        let plugged = self.vm.memory().await.unwrap().plugged_bytes;
        plugged - self.vm.config().base_bytes - SIZING.shared_bytes
    }

    /// Starts an instance and waits until it has filled its memory and answers; returns its slot
    /// and partition.
    async fn start(&self, name: &str) -> (Slot, PartitionNumber) {
        let slot = self.mechanism.slots().take().unwrap();
        self.mechanism.plug(&self.vm, slot).await.unwrap();
        let spec = json!({
            "id": name,
            "command": ["/bin/memhog", USED, "--port", "8080"],
            "partition": "none",
            "wait_ms": 30_000,
            "port": 8080,
        });
        let mut spec: InstanceSpec = serde_json::from_value(spec).unwrap();
        self.mechanism.place(slot, &mut spec);
        let started = self.agent().start(&spec).await.unwrap();
        let answers = async {
            let request = || http::Request::get("/").body(bytes::Bytes::new()).unwrap();
            while self.agent().http(&spec.id, request(), self.limit).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(self.limit, answers).await.unwrap();
        (slot, started.partition.unwrap())
    }

    /// Ends an instance and reclaims its memory.
    async fn end(&self, name: &str, slot: Slot) -> Result<(), VmError> {
        self.agent().stop(&name.parse().unwrap(), Duration::ZERO).await.unwrap();
        self.mechanism.slots().free(slot).unwrap();
        self.mechanism.reclaim(&self.vm, slot).await.map(|_| ())
    }
}

#[tokio::test]
async fn instances_start_beside_a_partition_whose_memory_is_broken_until_there_is_no_other() {
    beside_broken_memory(Kernel::Release, Llfree::Off).await;
}

#[tokio::test]
#[ignore = "the same with free lists is run always: run by `make stress`"]
async fn instances_start_beside_broken_memory_of_llfree() {
    beside_broken_memory(Kernel::Release, Llfree::All).await;
}

#[tokio::test]
#[ignore = "the debug kernel: run by `make stress`"]
async fn instances_start_beside_broken_memory_of_llfree_on_the_debug_kernel() {
    beside_broken_memory(Kernel::Debug, Llfree::All).await;
}

async fn beside_broken_memory(kernel: Kernel, llfree: Llfree) {
    let mechanism = MechanismName::Squeezy.mechanism(SIZING).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("monitor");
    let files = Artifacts::find(None).unwrap_or_else(|e| panic!("this test needs a guest: {e}"));
    let config = VmConfig::new("broken", files.kernel(kernel), files.initramfs());
    let mut config = mechanism.configure(config);
    let mut limit = Duration::from_secs(60);
    if kernel == Kernel::Debug {
        limit *= 3;
        config.timeouts.boot *= 3;
        config.timeouts.call *= 3;
        // KASAN has a good part of it for itself.
        config.base_bytes = 1024 * MIB;
        config.command_line.push("panic_on_warn=1".to_owned());
    }
    config.accelerator = AcceleratorChoice::Tcg;
    let monitor = format!("unix:{},server=on,wait=off", socket.display());
    let mut arguments = BELIEVED_PROCESSOR.map(Into::into).to_vec();
    arguments.extend(["-qmp".into(), monitor.into()]);
    config.vmm = Vmm::Qemu(QemuOptions { arguments, ..Default::default() });
    config.timeouts.resize = limit;
    let console = directory.path().join("console");
    config.console_log = Some(console.clone());
    if llfree != Llfree::Off {
        config.memory_backend = MemoryBackend::Memfd;
        config.llfree = llfree;
        config.take_free_every = Some(Duration::from_millis(20));
    }
    let vm = Vm::start(config).await.unwrap();
    let Sizing { instance_bytes, instances, shared_bytes } = SIZING;
    let layout = PartitionLayout::new(instance_bytes, instances, shared_bytes);
    let mut monitor = Monitor::open(UnixStream::connect(&socket).await.unwrap()).await.unwrap();
    let world = World { mechanism, vm, limit };

    let (slot, lost) = world.start("victim").await;
    let range = layout.range(lost).unwrap();
    monitor.break_page((range.start + range.end) / 2).await.unwrap();
    // The guest deals with it in a work item. Free by then, the page would only be missing.
    let is_dealt_with =
        || fs::read_to_string(&console).is_ok_and(|said| said.contains("recovery action for"));
    let dealing = async {
        while !is_dealt_with() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(limit, dealing).await.expect("the guest says nothing of it");
    // An instance may use the partition until it needs that page; its memory does not come back
    // afterwards.
    let begin = Instant::now();
    let ended = world.end("victim", slot).await;
    assert!(matches!(ended, Err(VmError::Held { partitions: 1, .. })), "{ended:?}");
    assert!(begin.elapsed() < limit / 2, "{:?}", begin.elapsed());
    assert_eq!(world.states().await, [Quarantined, Absent, Absent]);
    assert_eq!(world.plugged_bytes().await, SIZING.instance_bytes);
    assert!(matches!(world.mechanism.settle(&world.vm).await, Err(VmError::Held { .. })));

    // One more partition is requested than there are instances, so each has its own.
    let (second, partition) = world.start("second").await;
    assert_ne!(partition, lost);
    assert_eq!(world.plugged_bytes().await, 2 * SIZING.instance_bytes);
    let (_, other) = world.start("third").await;
    assert!(other != lost && other != partition);
    assert_eq!(world.states().await, [Quarantined, Assigned, Assigned]);

    // There is a slot but no partition, and the error comes without waiting for one.
    let slot = world.mechanism.slots().take().unwrap();
    let begin = Instant::now();
    let refused = world.mechanism.plug(&world.vm, slot).await.unwrap_err();
    assert!(begin.elapsed() < limit / 2, "{:?}", begin.elapsed());
    assert_eq!(refused, VmError::NoPartition { held: 1, partitions: 3 });
    assert!(refused.is_unfit());

    // The others still come and go.
    world.end("second", second).await.unwrap();
    assert_eq!(world.states().await, [Quarantined, Unplugged, Assigned]);
    let (_, again) = world.start("fourth").await;
    assert_eq!(again, partition);
    world.vm.stop().await.unwrap();
}
