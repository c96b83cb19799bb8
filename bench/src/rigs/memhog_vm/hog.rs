//! Programs in the guest's initramfs, above all `memhog`, which touches memory and holds it.

use crate::error::{BenchError, Result};
use squeezy_protocol::{InstanceId, InstanceSpec, InstanceState};
use squeezy_vmm::AgentClient;
use std::time::{Duration, Instant};

/// How long an instance may take to touch its memory.
const TOUCH_LIMIT: Duration = Duration::from_secs(300);
/// Interval of checks whether it has.
const TOUCH_PAUSE: Duration = Duration::from_millis(100);

/// Memory that memhog uses of an instance's: all but what its process needs otherwise, and what a
/// stock kernel may keep on the other processor's free lists, where it does not look before it
/// kills.
pub(crate) fn hog_bytes(size_bytes: u64) -> u64 {
    size_bytes.saturating_sub((6 << 20) + size_bytes / 16)
}

/// The id of an instance.
pub(crate) fn id(index: u16) -> Result<InstanceId> {
    format!("i{index}").parse().map_err(|e| BenchError::Arguments(format!("{e}")))
}

/// A program of the initramfs, outside any partition.
pub(crate) fn instance(index: u16, command: Vec<String>) -> Result<InstanceSpec> {
    Ok(InstanceSpec::new(id(index)?, command))
}

/// Waits until memhog has printed its line; returns the time it took to touch its memory.
pub(super) async fn touched(agent: &AgentClient, id: &InstanceId) -> Result<u64> {
    let start = Instant::now();
    let fail = |reason: String| BenchError::Workload { program: "memhog".to_owned(), reason };
    loop {
        let log = agent.log(id).await?;
        for line in log.lines() {
            let Ok(value) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            if let Some(ns) = value.get("touch_ns").and_then(serde_json::Value::as_u64) {
                return Ok(ns);
            }
        }
        if let InstanceState::Ended(reason) = agent.instance(id).await?.state {
            return Err(fail(format!("it ended ({reason:?}): {}", log.trim().replace('\n', "; "))));
        }
        if start.elapsed() > TOUCH_LIMIT {
            return Err(fail(format!(
                "it has not touched its memory within {} s",
                TOUCH_LIMIT.as_secs()
            )));
        }
        tokio::time::sleep(TOUCH_PAUSE).await;
    }
}
