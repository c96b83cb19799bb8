//! A limit on how many bytes a VM sends in a second.
//!
//! Datagrams pass by the judge, who counts them. Data of a TCP connection does not: the kernel holds it back, by a rate
//! that each connection has (`pacing.rs`). This divides the VM's rate among its connections, again and again, because
//! what one does not need others may use.

use super::{
    pace::Pace,
    pacing::{self, Carried},
};
use rustix::{fd::AsFd, io::Errno};
use std::{
    os::fd::{OwnedFd, RawFd},
    time::{Duration, Instant},
};

/// What a connection counts as when it is opened. Its first ten segments are not held back, and what it leaves in the
/// kernel when it is closed is sent at the rate that it had last; this is more than both: ten segments, 16 KiB, and the
/// 64 KiB that the kernel may add to these at a time.
pub(super) const OPENING_BYTES: u64 = 96 << 10;
/// What a datagram counts as besides its data, so that small ones are no way to send many.
pub(super) const HEADER_BYTES: u64 = 64;

/// How often the rate is divided while something is sent or received, and while nothing is.
const INTERVAL: Duration = Duration::from_millis(200);
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a division, which also lasts so many times as long as the division took.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_FACTOR: u32 = 20;

/// The limit of one VM.
#[derive(Debug)]
pub(super) struct Rate {
    bytes_per_second: u64,
    /// Limits what is counted, to half of the rate.
    counted: Pace,
    /// What has been counted since the last division.
    taken: u64,
    /// What has been counted and connections have not yet left out, at the last division.
    owed: u64,
    /// What they leave out each second, since then.
    left_out: u64,
    connections: Vec<Connection>,
    /// When the last division began.
    divided: Instant,
    /// The earliest time for the next one.
    soonest: Instant,
    due: Option<Instant>,
}

#[derive(Debug)]
struct Connection {
    /// The VMM's descriptor.
    socket: RawFd,
    /// What it had carried at the last division, if it was there.
    carried: Option<Carried>,
}

impl Rate {
    pub(super) fn new(bytes_per_second: u64, now: Instant) -> Self {
        Self {
            bytes_per_second,
            counted: Pace::new(bytes_per_second / 2, now),
            taken: 0,
            owed: 0,
            left_out: 0,
            connections: Vec::new(),
            divided: now,
            soonest: now,
            due: None,
        }
    }

    /// Whether so much may be sent now; if so, counts it.
    pub(super) fn take(&mut self, bytes: u64, now: Instant) -> bool {
        let may = self.counted.take(bytes, now);
        if may {
            self.taken += bytes;
        }
        may
    }

    /// Limits a connection that is about to be made. `socket` is the VMM's descriptor of it.
    pub(super) fn open(&mut self, socket: RawFd, connection: impl AsFd) -> Result<(), Errno> {
        // One that had this descriptor before has been closed.
        self.connections.retain(|other| other.socket != socket);
        self.connections.push(Connection { socket, carried: None });
        // The others keep what they have until the next division, which is soon.
        self.due = Some(self.due.map_or(self.soonest, |due| due.min(self.soonest)));
        pacing::begin(connection, self.for_connections() / self.connections.len() as u64)
    }

    /// When [`divide`](Self::divide) should be called; `None` if there is no connection.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Divides the rate among the connections that there still are. `duplicate` gets them from the VMM. Returns what they
    /// have carried since the last division. Of one that has been closed since, that is not known any more.
    pub(super) fn divide(
        &mut self,
        begin: Instant,
        duplicate: impl Fn(RawFd) -> Result<OwnedFd, Errno>,
    ) -> Carried {
        self.settle(begin);
        let mut sent = Vec::with_capacity(self.connections.len());
        let (mut all, mut is_idle) = (Carried::default(), true);
        self.connections.retain_mut(|connection| {
            let total = match duplicate(connection.socket).map(pacing::carried) {
                Ok(Ok(total)) => total,
                // It has been closed, or something else has its descriptor.
                Err(Errno::BADF) | Ok(Err(_)) => return false,
                // The daemon has no descriptor left, for one. Meanwhile it keeps the share that it has.
                Err(_) => {
                    sent.push(None);
                    is_idle = false;
                    return true;
                }
            };
            let before = connection.carried.replace(total);
            let new = total.since(before.unwrap_or_default());
            all.sent = all.sent.saturating_add(new.sent);
            all.received = all.received.saturating_add(new.received);
            is_idle &= before.is_some() && new == Carried::default();
            sent.push(before.map(|_| new.sent));
            true
        });
        let shares = shares(self.for_connections(), &sent);
        for (connection, share) in self.connections.iter().zip(shares) {
            // It may have been closed meanwhile. One that cannot be had now is tried again soon.
            let _ = duplicate(connection.socket).and_then(|socket| pacing::limit(socket, share));
        }
        let end = Instant::now();
        self.soonest = end + PAUSE.max((end - begin) * PAUSE_FACTOR);
        let interval = if is_idle { IDLE_INTERVAL } else { INTERVAL };
        self.due = (!sent.is_empty()).then(|| self.soonest.max(begin + interval));
        all
    }

    /// Decides what connections have to leave out for what was counted: all of it, within an interval or as soon as half
    /// of the rate suffices for that.
    fn settle(&mut self, now: Instant) {
        let half = self.bytes_per_second / 2;
        let since = now.saturating_duration_since(self.divided);
        let left_out = u128::from(self.left_out) * since.as_micros() / 1_000_000;
        let owed = u128::from(self.owed).saturating_sub(left_out) + u128::from(self.taken);
        // Without connections, nobody has left out anything.
        self.owed = owed.min(u128::from(half)) as u64;
        self.left_out = half.min(self.owed.saturating_mul(1000) / INTERVAL.as_millis() as u64);
        self.taken = 0;
        self.divided = now;
    }

    fn for_connections(&self) -> u64 {
        self.bytes_per_second - self.left_out
    }
}

/// Divides a rate among connections by what each has sent lately; `None` for new ones, of which each may need as much
/// as the busiest. A quarter is divided evenly, for those that begin to send now.
fn shares(rate: u64, sent: &[Option<u64>]) -> Vec<u64> {
    let busiest = sent.iter().flatten().max().copied().unwrap_or(0).max(1);
    let needs = |sent: &Option<u64>| u128::from(sent.unwrap_or(busiest));
    let all: u128 = sent.iter().map(needs).sum();
    let of = |rate: u64, part: u128, whole: u128| (u128::from(rate) * part / whole) as u64;
    let evenly = |rate| of(rate, 1, sent.len() as u128);
    let by_need = |one| match all {
        0 => evenly(rate - rate / 4),
        _ => of(rate - rate / 4, needs(one), all),
    };
    sent.iter().map(|one| evenly(rate / 4) + by_need(one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        os::unix::net::UnixStream,
    };

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn who_sends_gets_what_the_others_do_not_need() {
        assert_eq!(shares(1000, &[None]), [1000]);
        assert_eq!(shares(1000, &[Some(0), Some(0)]), [500, 500]);
        assert_eq!(shares(1000, &[Some(70), Some(0)]), [875, 125]);
        assert_eq!(shares(1000, &[Some(70), None]), [500, 500]);
        assert_eq!(shares(1000, &[]), [0; 0]);
    }

    #[test]
    fn what_is_counted_is_at_most_half_and_connections_leave_it_out() {
        let start = Instant::now();
        let mut rate = Rate::new(1000, start);
        assert_eq!((0..100).filter(|_| rate.take(10, start)).count(), 50);
        rate.settle(start);
        assert_eq!(rate.for_connections(), 500);
        // All of it has been left out after a second.
        rate.settle(start + SECOND);
        assert_eq!(rate.for_connections(), 1000);
        assert!(rate.take(20, start + SECOND));
        rate.settle(start + SECOND);
        assert_eq!(rate.for_connections(), 900);
        rate.settle(start + SECOND + INTERVAL);
        assert_eq!(rate.for_connections(), 1000);
    }

    #[test]
    fn a_connection_that_cannot_be_had_now_is_there_the_next_time() {
        let start = Instant::now();
        let mut rate = Rate::new(1000, start);
        let socket = OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let pair = OwnedFd::from(UnixStream::pair().unwrap().0);
        rate.open(7, &socket).unwrap();
        for error in [Errno::MFILE, Errno::NFILE] {
            rate.divide(start, |_| Err(error));
            assert!(rate.due().is_some(), "{error}");
        }
        rate.divide(start, |_| Ok(socket.try_clone().unwrap()));
        assert!(rate.due().is_some());
        rate.divide(start, |_| Err(Errno::BADF));
        assert_eq!(rate.due(), None, "it has been closed");
        rate.open(7, &socket).unwrap();
        rate.divide(start, |_| Ok(pair.try_clone().unwrap()));
        assert_eq!(rate.due(), None, "it is something else");
    }

    #[test]
    fn what_connections_carry_is_counted_once() {
        let start = Instant::now();
        let mut rate = Rate::new(1 << 20, start);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        rate.open(7, &stream).unwrap();
        let duplicate = |_: RawFd| Ok(OwnedFd::from(stream.try_clone().unwrap()));
        let mut exchange = || {
            (&stream).write_all(&[0; 1000]).unwrap();
            other.read_exact(&mut [0; 1000]).unwrap();
            other.write_all(&[0; 300]).unwrap();
            (&stream).read_exact(&mut [0; 300]).unwrap();
        };
        for _ in 0..2 {
            exchange();
            let once = Carried { sent: 1000, received: 300 };
            assert_eq!(rate.divide(start, duplicate), once);
            assert_eq!(rate.divide(start, duplicate), Carried::default());
        }
    }

    proptest! {
        #[test]
        fn shares_are_never_more_than_the_whole(
            rate: u64,
            sent in prop::collection::vec(any::<Option<u64>>(), 1..600),
        ) {
            let all: u128 = shares(rate, &sent).into_iter().map(u128::from).sum();
            prop_assert!(all <= u128::from(rate));
            prop_assert!(all + 2 * sent.len() as u128 >= u128::from(rate));
        }
    }
}
