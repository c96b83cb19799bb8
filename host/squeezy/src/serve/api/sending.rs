//! Answers that their clients have to read: at a minimum rate while others wait for memory.

use super::{LEAST_RATE, LEAST_RATE_AFTER, LOOK, error::ApiError, internal};
use crate::serve::{
    bodies::{self, Held, Part, SMALL},
    crowd::Place,
};
use axum::{
    body::{Body, Bytes, HttpBody},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use hyper::body::{Frame, SizeHint};
use serde::Serialize;
use squeezy_openwhisk::length_as_text;
use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;

/// How long an answer is sent at most while others wait for memory.
const LONGEST: Duration = Duration::from_secs(30);

/// What the connection takes at a time, in bytes.
const PIECE: usize = 64 << 10;

/// Whoever is answered.
#[derive(Clone)]
pub struct Recipient {
    /// Where memory for the answer comes from.
    pub part: Part,
    /// That of the connection.
    pub place: Option<Arc<Place>>,
}

impl Recipient {
    /// A JSON response, built once there is memory for it.
    pub async fn answer(
        &self,
        status: StatusCode,
        value: &impl Serialize,
    ) -> Result<Response, ApiError> {
        let length = length_as_text(value).map_err(internal)?;
        // A response that exceeds the whole budget is built while no other one is.
        let held = self.part.take_for_answer(self.part.at_most(length)).await;
        let held = held.map_err(|none| ApiError::no_room(none, length))?;
        self.answer_within(held, status, value)
    }

    /// A JSON response whose memory has been reserved.
    pub fn answer_within(
        &self,
        held: Held,
        status: StatusCode,
        value: &impl Serialize,
    ) -> Result<Response, ApiError> {
        let text = serde_json::to_vec(value).map_err(internal)?;
        let kind = [(CONTENT_TYPE, "application/json")];
        Ok((status, kind, self.body(text, held)).into_response())
    }

    /// The body of an answer whose memory has been reserved. The connection is closed if the client reads too
    /// slowly while others wait for such memory.
    pub fn body(&self, bytes: Vec<u8>, held: Held) -> Body {
        let Some(place) = self.place.clone().filter(|_| bytes.len() > SMALL) else {
            return bodies::held(bytes, held).into();
        };
        let sending = Sending::start(held, bytes.len(), Some(&place));
        Body::new(Pieces { rest: bodies::held(bytes, sending.clone()), last_bytes: 0, sending })
    }

    /// The body of an answer of about so many bytes that is made as it is sent; memory for a few pieces has been
    /// reserved. The connection is closed as with others.
    pub fn stream(&self, source: impl Source + Unpin, length: usize, held: Held) -> Body {
        let sending = Sending::start(held, length, self.place.as_ref());
        Body::new(Stream { source: Some(source), making: None, last_bytes: 0, sending })
    }
}

/// What makes an answer piece by piece, where it may wait for the disk.
pub trait Source: Send + 'static {
    /// The next piece, which is not empty; none after the last one. After an error, the answer is broken off.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>>;
}

/// An answer that is being sent, until nobody needs its bytes any more.
struct Sending {
    held: Held,
    /// What the client has read of it, about, in bytes.
    sent_bytes: AtomicUsize,
    /// In bytes per second, while others wait for memory.
    least_rate: f64,
}

impl Sending {
    /// Begins to send an answer of about so many bytes. Whoever reads too slowly leaves this place.
    fn start(held: Held, length: usize, place: Option<&Arc<Place>>) -> Arc<Self> {
        let least_rate = (length as f64 / LONGEST.as_secs_f64()).max(LEAST_RATE);
        let sending = Arc::new(Self { held, sent_bytes: AtomicUsize::new(0), least_rate });
        if let Some(place) = place {
            tokio::spawn(watch(Arc::downgrade(&sending), Arc::downgrade(place)));
        }
        sending
    }
}

/// A piece that is being made, none after the last one, with what makes it.
type Making<S> = JoinHandle<(S, io::Result<Option<Vec<u8>>>)>;

/// An answer whose pieces are made as they are sent.
struct Stream<S> {
    /// What makes them, unless it makes one.
    source: Option<S>,
    making: Option<Making<S>>,
    /// The length of the latest piece, which has been sent when the next one is asked for, in bytes.
    last_bytes: usize,
    sending: Arc<Sending>,
}

impl<S: Source + Unpin> HttpBody for Stream<S> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if let Some(mut source) = this.source.take() {
            this.sending.sent_bytes.fetch_add(this.last_bytes, Ordering::Relaxed);
            this.making = Some(tokio::task::spawn_blocking(move || {
                let piece = source.next();
                (source, piece)
            }));
        }
        let Some(making) = &mut this.making else { return Poll::Ready(None) };
        let made = ready!(Pin::new(making).poll(context));
        this.making = None;
        Poll::Ready(match made {
            Ok((source, Ok(Some(piece)))) => {
                this.source = Some(source);
                this.last_bytes = piece.len();
                Some(Ok(Frame::data(piece.into())))
            }
            Ok((_, Ok(None))) => None,
            Ok((_, Err(error))) => Some(Err(error)),
            Err(error) => Some(Err(io::Error::other(error))),
        })
    }
}

/// An answer in pieces.
struct Pieces {
    rest: Bytes,
    /// The length of the latest piece, which has been sent when the next one is asked for, in bytes.
    last_bytes: usize,
    sending: Arc<Sending>,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.sending.sent_bytes.fetch_add(self.last_bytes, Ordering::Relaxed);
        let bytes = PIECE.min(self.rest.len());
        self.last_bytes = bytes;
        let piece = self.rest.split_to(bytes);
        Poll::Ready((!piece.is_empty()).then_some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

async fn watch(sending: Weak<Sending>, place: Weak<Place>) {
    let begin = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(sending) = sending.upgrade() else { return };
        let took = begin.elapsed();
        let sent_bytes = sending.sent_bytes.load(Ordering::Relaxed) as f64;
        let is_slow = sent_bytes < took.as_secs_f64() * sending.least_rate;
        if is_slow && took > LEAST_RATE_AFTER && sending.held.is_wanted() {
            if let Some(place) = place.upgrade() {
                place.leave();
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{
        bodies::{Bodies, Payer},
        crowd::Crowd,
    };
    use http_body_util::BodyExt;

    async fn recipient() -> (Recipient, Arc<Place>) {
        let place = Arc::new(Crowd::new(1).enter().await);
        let part = Bodies::new(16 << 20).part(Payer::alone());
        (Recipient { part, place: Some(place.clone()) }, place)
    }

    #[tokio::test]
    async fn who_does_not_read_goes_when_others_wait_for_memory() {
        let (recipient, place) = recipient().await;
        let part = &recipient.part;
        let all = part.at_most(usize::MAX);
        let answer = async |length| {
            let held = part.take_for_answer(all).await.unwrap();
            recipient.body(vec![b'x'; length], held)
        };
        let read = answer(1 << 20).await.collect().await.unwrap().to_bytes();
        assert_eq!(read.len(), 1 << 20);
        drop(read);
        let unread = answer(1 << 20).await;
        assert_eq!(unread.size_hint().exact(), Some(1 << 20));
        let leaves = tokio::time::timeout(Duration::from_secs(3), place.left());
        assert!(leaves.await.is_err(), "nobody waits");
        let begin = Instant::now();
        let (next, ()) = tokio::join!(part.take_for_answer(all), async {
            place.left().await;
            drop(unread);
        });
        assert!(next.is_ok() && begin.elapsed() < Duration::from_secs(3));
    }

    /// So many pieces of this length, and then an error, if there is to be one.
    struct Letters {
        left: usize,
        fails: bool,
    }

    impl Source for Letters {
        fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
            match self.left {
                0 if self.fails => Err(io::Error::other("no more")),
                0 => Ok(None),
                _ => {
                    self.left -= 1;
                    Ok(Some(vec![b'x'; 64 << 10]))
                }
            }
        }
    }

    #[tokio::test]
    async fn an_answer_may_be_made_while_it_is_sent() {
        let (recipient, place) = recipient().await;
        let part = &recipient.part;
        let all = part.at_most(usize::MAX);
        let answer = async |left, fails| {
            let held = part.take_for_answer(all).await.unwrap();
            recipient.stream(Letters { left, fails }, left << 16, held)
        };
        let read = answer(20, false).await.collect().await.unwrap().to_bytes();
        assert_eq!(read.len(), 20 << 16);
        assert!(answer(3, true).await.collect().await.is_err());
        // Whoever does not read it goes as others do.
        let mut unread = answer(20, false).await;
        unread.frame().await.unwrap().unwrap();
        let (next, ()) = tokio::join!(part.take_for_answer(all), async {
            place.left().await;
            drop(unread);
        });
        assert!(next.is_ok());
    }

    #[tokio::test]
    async fn who_reads_may_go_on() {
        let (recipient, place) = recipient().await;
        let part = &recipient.part;
        let all = part.at_most(usize::MAX);
        let held = part.take_for_answer(all).await.unwrap();
        let mut read = recipient.body(vec![b'x'; 1 << 20], held);
        let reader = async {
            // 256 KiB/s.
            while let Some(piece) = read.frame().await {
                drop(piece);
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            drop(read);
        };
        let told = async {
            tokio::join!(part.take_for_answer(all), reader).0.unwrap();
        };
        tokio::select! {
            () = place.left() => panic!("it read fast enough"),
            () = told => {}
        }
    }
}
