//! Limits that change while an instance runs, and the one that no cgroup has: that of private memory.
//!
//! Private memory is in a partition and charged to nobody (docs/adr/0057), so the agent looks how much an instance has:
//! the sooner, the less is missing to its limit. What it may have beyond for a moment is still within its partition.

use super::{Entry, validate};
use crate::{console, error::ApiError, processes};
use squeezy_protocol::{ErrorCode, LimitsRequest};
use std::time::{Duration, Instant};

/// How much an instance is taken to fill in a millisecond, in bytes: what one processor clears.
const BYTES_PER_MS: u64 = 2 << 20;
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The pause is so many times as long as looking took.
const PAUSE_PER_LOOK: u32 = 20;

impl Entry {
    /// Changes its limits, or none of them.
    pub async fn change_limits(&self, limits: LimitsRequest) -> Result<(), ApiError> {
        validate::check_limits(&limits)?;
        let cgroup = self.own_cgroup()?;
        if let Some(bytes) = limits.private_limit_bytes {
            let held = self.private_bytes_beyond(bytes).await?;
            if held > bytes {
                let message =
                    format!("{}: it has {held} bytes of private memory, not {bytes}", self.id);
                return Err(ApiError::new(ErrorCode::Unavailable, message));
            }
        }
        cgroup.change_processors(limits.cpu_share_millis, limits.cpu_limit_millis).map_err(
            |error| ApiError::internal(&format!("limiting instance {}", self.id), error),
        )?;
        if limits.private_limit_bytes.is_some() {
            self.private_limit.send_replace(limits.private_limit_bytes);
        }
        Ok(())
    }

    /// Looks after its limit of private memory until it has exceeded it, and kills it then.
    pub(super) async fn until_it_exceeds_its_limit(&self) {
        let mut limit = self.private_limit.subscribe();
        loop {
            let now = *limit.borrow_and_update();
            let pause = async {
                match now {
                    Some(bytes) => tokio::time::sleep(self.look_at_limit(bytes).await).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = pause => {}
                // The sender is in self.
                _ = limit.changed() => {}
            }
            if self.exceeded.get() {
                return;
            }
        }
    }

    /// Kills it if it has more than this, and returns how long not to look again.
    async fn look_at_limit(&self, bytes: u64) -> Duration {
        // What does not run takes no memory.
        if self.frozen.get() {
            return LONGEST_PAUSE;
        }
        let begin = Instant::now();
        let Ok(held) = self.private_bytes_beyond(bytes).await else { return LONGEST_PAUSE };
        if held > bytes {
            console!(
                "instance {} has {held} bytes of private memory, and may have {bytes}",
                self.id
            );
            match self.kill() {
                Ok(()) => self.exceeded.set(true),
                Err(error) => console!("{error}"),
            }
            return SHORTEST_PAUSE;
        }
        pause(bytes - held, begin.elapsed())
    }

    async fn private_bytes_beyond(&self, bytes: u64) -> Result<u64, ApiError> {
        self.look_at(move |all| processes::private_bytes_beyond(&all, bytes)).await
    }
}

/// How long not to look again if so many bytes are missing, and looking took so long.
fn pause(missing_bytes: u64, look: Duration) -> Duration {
    let filled = Duration::from_millis(missing_bytes / BYTES_PER_MS);
    filled.clamp(SHORTEST_PAUSE, LONGEST_PAUSE).max(look * PAUSE_PER_LOOK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_near_the_limit_is_looked_at_sooner() {
        let none = Duration::ZERO;
        assert_eq!(pause(0, none), SHORTEST_PAUSE);
        assert_eq!(pause(256 << 20, none), Duration::from_millis(128));
        assert_eq!(pause(u64::MAX, none), LONGEST_PAUSE);
        // However many processes it has, looking takes a twentieth of a processor.
        assert_eq!(pause(0, Duration::from_millis(50)), Duration::from_secs(1));
    }
}
