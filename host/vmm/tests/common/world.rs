//! A VM in which instances have partitions whose free memory the host can take.

use super::{LONG, config};
use squeezy_protocol::{Instance, InstanceSpec, PartitionNumber};
use squeezy_vmm::{
    Llfree, MemoryBackend, Vm,
    mechanism::{Mechanism, MechanismName, Sizing, Slot},
};
use std::time::Duration;

pub const MIB: u64 = 1 << 20;
pub const SIZING: Sizing =
    Sizing { instance_bytes: 256 * MIB, instances: 2, shared_bytes: 64 * MIB };

/// A VM whose partitions LLFree keeps.
pub struct World {
    pub vm: Vm,
    pub mechanism: Box<dyn Mechanism>,
}

impl World {
    pub async fn start(vcpus: u32) -> Self {
        Self::start_with(vcpus, None).await
    }

    pub async fn start_with(vcpus: u32, take_free_every: Option<Duration>) -> Self {
        let mechanism = MechanismName::Squeezy.mechanism(SIZING).unwrap();
        let mut config = mechanism.configure(config("reclaiming"));
        config.memory_backend = MemoryBackend::Memfd;
        config.llfree = Llfree::Partitions;
        config.vcpus = vcpus;
        config.take_free_every = take_free_every;
        Self { vm: Vm::start(config).await.unwrap(), mechanism }
    }

    /// Starts an instance in a partition, and waits until it says that it is ready.
    pub async fn run(&self, mut spec: InstanceSpec) -> (Slot, PartitionNumber) {
        let slot = self.mechanism.slots().take().unwrap();
        self.mechanism.plug(&self.vm, slot).await.unwrap();
        spec.wait_ms = 30_000;
        self.mechanism.place(slot, &mut spec);
        let agent = self.vm.agent().unwrap();
        let started = agent.start(&spec).await.unwrap();
        for _ in 0..1800 {
            if agent.log(&spec.id).await.unwrap().contains("ready") {
                return (slot, started.partition.unwrap());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{} is not ready", spec.id);
    }

    pub async fn ended(&self, spec: &InstanceSpec) -> Instance {
        let agent = self.vm.agent().unwrap();
        let wait = agent.wait(&spec.id);
        tokio::time::timeout(LONG, wait).await.unwrap().unwrap()
    }

    pub async fn resident(&self, partition: PartitionNumber) -> u64 {
        self.vm.partition_resident(partition).await.unwrap()
    }
}
