//! A timer that stops while the VM is paused, so that a paused guest does not count as hung.

use hyper::rt::{Sleep, Timer};
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Counts the time in which the VM runs. The channel says whether it is paused.
pub(crate) struct RunningTime(pub(crate) watch::Receiver<bool>);

impl RunningTime {
    /// Waits until the VM has run for `left`.
    async fn pass(mut paused: watch::Receiver<bool>, mut left: Duration) {
        loop {
            // The sender lives as long as the VM; without a VM, there is nothing to wait for.
            if paused.wait_for(|paused| !paused).await.is_err() {
                return;
            }
            let start = Instant::now();
            match tokio::time::timeout(left, paused.wait_for(|paused| *paused)).await {
                Ok(Ok(_)) => left = left.saturating_sub(start.elapsed()),
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
}

impl Timer for RunningTime {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Passing(Some(Box::pin(Self::pass(self.0.clone(), duration)))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(Instant::now()))
    }
}

/// A sleep in running time; `None` once it has elapsed, because hyper polls it again.
struct Passing(Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>);

impl Future for Passing {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(passing) = &mut self.0 {
            std::task::ready!(passing.as_mut().poll(context));
            self.0 = None;
        }
        Poll::Ready(())
    }
}

impl Sleep for Passing {}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    #[tokio::test]
    async fn time_passes_only_while_the_vm_runs() {
        const STEP: Duration = Duration::from_millis(40);
        let (paused, receiver) = watch::channel(true);
        let mut sleep = RunningTime(receiver).sleep(STEP / 2);
        assert!(timeout(STEP, &mut sleep).await.is_err(), "it is paused");
        paused.send_replace(false);
        assert!(timeout(STEP * 100, &mut sleep).await.is_ok());
    }
    #[tokio::test]
    async fn time_that_has_passed_stays_so() {
        let (paused, receiver) = watch::channel(false);
        let mut sleep = RunningTime(receiver).sleep(Duration::from_secs(1000));
        // The VM has ended.
        drop(paused);
        for _ in 0..2 {
            assert!(timeout(Duration::from_secs(1), &mut sleep).await.is_ok());
        }
    }
}
