//! A host that has no memory left for a guest. Needs `make kernel image`, and root for a control group.

mod common;

use common::{
    LONG, instance,
    world::{MIB, World},
};
use squeezy_protocol::{ExitReason, InstanceState};
use squeezy_vmm::Grain;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::timeout;

/// A control group whose processes get so much memory, in bytes, besides what they have when they are added.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new(bytes: u64) -> Self {
        let mut root = Path::new("/sys/fs/cgroup/memory");
        let mut limit = "memory.limit_in_bytes";
        if !root.is_dir() {
            (root, limit) = (Path::new("/sys/fs/cgroup"), "memory.max");
            fs::write(root.join("cgroup.subtree_control"), "+memory")
                .expect("root, and control groups");
        }
        let group = Self(root.join(format!("squeezy-test-{}", std::process::id())));
        fs::create_dir(&group.0).expect("root, and control groups");
        fs::write(group.0.join(limit), bytes.to_string()).unwrap();
        group
    }

    fn add(&self, process: u32) {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).unwrap();
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The memory that was taken out of a guest is the host's, which may have spent it by the time the guest uses it again.
#[tokio::test]
#[ignore = "needs a control group: run by `make stress`"]
async fn a_guest_whose_memory_the_host_has_spent_ends_alone() {
    let neighbour = World::start(1).await;
    let world = World::start_with(2, Some(Duration::from_millis(100))).await;
    let hog = instance("hog", &["/bin/memhog", "200M", "--exit-after", "10"]);
    let (slot, partition) = world.run(hog.clone()).await;
    world.ended(&hog).await;
    let agent = world.vm.agent().unwrap();
    agent.stop(&hog.id, Duration::ZERO).await.unwrap();
    // It takes it by itself, too.
    world.vm.take_free(partition, Grain::Area).await.unwrap();
    let left = world.resident(partition).await;
    assert!(left < 10 * MIB, "{left}");

    let group = MemoryGroup::new(32 * MIB);
    group.add(world.vm.process_id());
    let mut next = instance("next", &["/bin/memhog", "200M"]);
    world.mechanism.place(slot, &mut next);
    // It may have ended before it answers.
    let _ = timeout(LONG, agent.start(&next)).await.expect("nobody waits for ever");
    let error = timeout(LONG, world.vm.wait()).await.expect("it ends");
    assert!(error.to_string().contains("ran out of memory"), "{error}");
    let taken = timeout(LONG, world.vm.take_free(partition, Grain::Area)).await;
    taken.expect("nobody waits for ever").expect_err("there is nothing to take");

    let other = instance("other", &["/bin/memhog", "200M", "--check", "--exit-after", "100"]);
    neighbour.run(other.clone()).await;
    assert_eq!(neighbour.ended(&other).await.state, InstanceState::Ended(ExitReason::Exited(0)));
    neighbour.vm.stop().await.unwrap();
}
