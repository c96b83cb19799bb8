//! What tasks use.

use super::*;
use crate::tasks::usage::{LIMIT, PAUSE};
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn a_vm_that_does_not_say_what_its_tasks_use_is_waited_for_once() {
    let bench = running().await;
    let begin = Instant::now();
    bench.vm.follow(vec![(600_000, false)]);
    for task in ["in", "pod", "in"] {
        let late = bench.tasks.usage(&name(task)).await.unwrap_err();
        assert!(late.message.contains("has not said"), "{task}: {late}");
    }
    assert!(begin.elapsed() < 2 * LIMIT);
    sleep(PAUSE).await;
    assert_eq!(bench.tasks.usage(&name("pod")).await.unwrap().memory_bytes, 4096);
}
