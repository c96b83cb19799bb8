//! What the host does with the memory of a VM by itself, for as long as it runs.

use super::{
    Shared,
    lenience::{Lenience, Verdict},
    memory::blocking,
};
use crate::{Grain, Taken, VmError};
use std::time::{Duration, Instant};

/// How often there may be something to do.
const INTERVAL: Duration = Duration::from_secs(1);

impl Shared {
    /// Takes what is free, so that what the guest's peaks leave behind does not stay with it, and takes back what the
    /// guest has used of the memory that the host keeps. Returns only if the VM has to end, and why.
    pub(super) async fn keep_up(&self) -> VmError {
        let mut tick = tokio::time::interval(INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last_taken = Instant::now();
        let mut lenience = Lenience::default();
        loop {
            tick.tick().await;
            let bytes = self.enforce().await;
            match lenience.judge(bytes, Instant::now()) {
                Verdict::Lives => {}
                Verdict::IsWarned => tracing::warn!(
                    vm = self.config.name,
                    bytes,
                    "the guest has used memory that the host had taken; if it does so again soon, its VM is ended"
                ),
                Verdict::Ends => return VmError::LimitBroken { bytes },
            }
            let is_due = |every: &Duration| last_taken.elapsed() >= *every;
            if self.reclaimer.get().is_some()
                && self.config.take_free_every.as_ref().is_some_and(is_due)
            {
                // A failure has been logged, and costs nothing but memory.
                let _ = self.sweep(Grain::Area).await;
                last_taken = Instant::now();
            }
        }
    }

    /// Discards what the guest has used of the memory that it does not have; returns how many bytes that was.
    async fn enforce(&self) -> u64 {
        let Some(reclaimer) = self.reclaimer.get().cloned() else { return 0 };
        let begin = Instant::now();
        let found = blocking(move || reclaimer.enforce()).await;
        let bytes = found.unwrap_or_else(|error| {
            tracing::warn!(vm = self.config.name, %error, "memory that the host had taken");
            0
        });
        if bytes > 0 {
            tracing::debug!(vm = self.config.name, bytes, "used of what the host had taken");
            self.swept.add(&Taken { bytes, took: begin.elapsed(), ..Taken::default() });
        }
        bytes
    }
}
