//! Waits of less than a millisecond, which tokio's timer does not offer.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::{io, os::fd::OwnedFd, time::Duration};
use tokio::io::unix::AsyncFd;

/// A timer with the kernel's resolution.
pub(super) struct ShortTimer(AsyncFd<OwnedFd>);

impl ShortTimer {
    pub(super) fn new() -> io::Result<Self> {
        let fd = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        // SAFETY: the descriptor is owned by the `AsyncFd`, which never gives it away.
        Ok(Self(unsafe { AsyncFd::register(fd) }?))
    }

    /// Waits for `time`.
    pub(super) async fn wait(&self, time: Duration) -> io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let time = time.max(Duration::from_nanos(1));
        let value =
            Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
        timerfd_settime(
            self.0.get_ref(),
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: zero, it_value: value },
        )?;
        loop {
            let mut ready = self.0.readable().await?;
            let read = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut [0; 8])?));
            match read {
                Ok(result) => return result.map(drop),
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_is_short() {
        let timer = ShortTimer::new().unwrap();
        let mut shortest = Duration::MAX;
        for _ in 0..100 {
            let start = std::time::Instant::now();
            timer.wait(Duration::from_micros(200)).await.unwrap();
            shortest = shortest.min(start.elapsed());
        }
        // Tokio's timer would take 1 to 2 ms each, and a loaded machine does not delay all of them.
        let short = Duration::from_micros(200)..Duration::from_millis(1);
        assert!(short.contains(&shortest), "{shortest:?}");
    }
}
