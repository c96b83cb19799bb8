//! Answers that their clients have to read: at a minimum rate while others wait for memory.

use super::{LEAST_RATE, LEAST_RATE_AFTER, LOOK};
use crate::serve::{
    bodies::{self, Bodies, Held},
    crowd::Place,
};
use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

/// What the connection takes at a time, in bytes.
const PART: usize = 64 << 10;

/// The body of an answer in memory of this budget. The connection in this place is closed if the client reads too
/// slowly while others wait for such memory.
pub fn body(bytes: Vec<u8>, held: Held, bodies: &Arc<Bodies>, place: Option<Arc<Place>>) -> Body {
    let sending = Arc::new(Sending { _held: held, sent_bytes: AtomicUsize::new(0) });
    if let Some(place) = place {
        tokio::spawn(watch(Arc::downgrade(&sending), bodies.clone(), place));
    }
    Body::new(Parts { rest: bodies::held(bytes, sending.clone()), last_bytes: 0, sending })
}

/// An answer that is being sent, until nobody needs its bytes any more.
struct Sending {
    _held: Held,
    /// What the client has read of it, about, in bytes.
    sent_bytes: AtomicUsize,
}

/// An answer in parts.
struct Parts {
    rest: Bytes,
    /// The length of the latest part, which has been sent when the next one is asked for, in bytes.
    last_bytes: usize,
    sending: Arc<Sending>,
}

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.sending.sent_bytes.fetch_add(self.last_bytes, Ordering::Relaxed);
        let bytes = PART.min(self.rest.len());
        self.last_bytes = bytes;
        let part = self.rest.split_to(bytes);
        Poll::Ready((!part.is_empty()).then_some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

async fn watch(sending: Weak<Sending>, bodies: Arc<Bodies>, place: Arc<Place>) {
    let begin = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(sending) = sending.upgrade() else { return };
        let took = begin.elapsed();
        let sent_bytes = sending.sent_bytes.load(Ordering::Relaxed) as f64;
        let is_slow = sent_bytes < took.as_secs_f64() * LEAST_RATE;
        if is_slow && took > LEAST_RATE_AFTER && bodies.is_short() {
            return place.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::crowd::Crowd;
    use http_body_util::BodyExt;
    use std::time::Duration;

    #[tokio::test]
    async fn who_does_not_read_goes_when_others_wait_for_memory() {
        let bodies = Bodies::new(16 << 20);
        let all = bodies.at_most(usize::MAX);
        let place = Arc::new(Crowd::new(1).enter().await);
        let answer = async |length| {
            let held = bodies.take(all).await.unwrap();
            body(vec![b'x'; length], held, &bodies, Some(place.clone()))
        };
        let read = answer(1 << 20).await.collect().await.unwrap().to_bytes();
        assert_eq!(read.len(), 1 << 20);
        drop(read);
        let unread = answer(1 << 20).await;
        assert_eq!(unread.size_hint().exact(), Some(1 << 20));
        let leaves = tokio::time::timeout(Duration::from_secs(3), place.left());
        assert!(leaves.await.is_err(), "nobody waits");
        let begin = Instant::now();
        let (next, ()) = tokio::join!(bodies.take(all), async {
            place.left().await;
            drop(unread);
        });
        assert!(next.is_ok() && begin.elapsed() < Duration::from_secs(3));
    }

    #[tokio::test]
    async fn who_reads_may_go_on() {
        let bodies = Bodies::new(16 << 20);
        let all = bodies.at_most(usize::MAX);
        let place = Arc::new(Crowd::new(1).enter().await);
        let held = bodies.take(all).await.unwrap();
        let mut read = body(vec![b'x'; 1 << 20], held, &bodies, Some(place.clone()));
        let reader = async {
            // 256 KiB/s.
            while let Some(part) = read.frame().await {
                drop(part);
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            drop(read);
        };
        let told = async {
            tokio::join!(bodies.take(all), reader).0.unwrap();
        };
        tokio::select! {
            () = place.left() => panic!("it read fast enough"),
            () = told => {}
        }
    }
}
