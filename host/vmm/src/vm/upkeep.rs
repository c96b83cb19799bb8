//! What the host does with the memory of a VM by itself, for as long as it runs.

use super::{
    Shared,
    lenience::{Lenience, Verdict},
};
use crate::{Grain, Taken, VmError, host_memory::Strays};
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
            let Strays { pieces, bytes } = self.enforce().await;
            match lenience.judge(pieces, Instant::now()) {
                Verdict::Lives => {}
                Verdict::IsWarned => tracing::warn!(
                    vm = self.config.name,
                    bytes,
                    places = pieces,
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

    /// Discards what the guest has used of the memory that it does not have.
    async fn enforce(&self) -> Strays {
        let Some(reclaimer) = self.reclaimer.get().cloned() else { return Strays::default() };
        let begin = Instant::now();
        let found = self.work(move || reclaimer.enforce()).await;
        let strays = found.unwrap_or_else(|error| {
            tracing::warn!(vm = self.config.name, %error, "memory that the host had taken");
            Strays::default()
        });
        let bytes = strays.bytes;
        if strays.pieces > 0 {
            tracing::debug!(vm = self.config.name, bytes, "used of what the host had taken");
            self.swept.add(&Taken { bytes, took: begin.elapsed(), ..Taken::default() });
        }
        strays
    }
}
