//! What one namespace may have of the budget.

use super::{
    Bodies, Held, NoRoom, SMALL, UNIT, WAIT, WAIT_FOR_TURN,
    room::{Claim, Purpose, Room},
};
use squeezy_openwhisk::Namespace;
use std::sync::{Arc, Mutex};
use tokio::time::{Instant, timeout_at};

/// How much of what belongs to all is for one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// There is no other one.
    All,
    ThreeQuarters,
    Quarter,
}

impl Portion {
    /// This much of so many.
    pub fn of(self, all: usize) -> usize {
        match self {
            Self::All => all,
            Self::ThreeQuarters => all - all / 4,
            Self::Quarter => all / 4,
        }
    }
}

/// Whose reservation something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payer {
    /// Whoever has its key, or calls its web actions.
    pub namespace: Namespace,
    /// Of what requests may hold and of what answers may hold.
    pub portion: Portion,
}

/// What a namespace may have of the budget.
#[derive(Clone)]
pub struct Part {
    bodies: Arc<Bodies>,
    payer: Payer,
}

impl Part {
    pub(super) fn new(bodies: Arc<Bodies>, payer: Payer) -> Self {
        Self { bodies, payer }
    }

    /// Reserves `bytes` for a request and what is made of it. Waits for others to release theirs, for a limited time.
    pub async fn take_for_request(&self, bytes: usize) -> Result<Held, NoRoom> {
        self.take(Purpose::Request, bytes).await
    }

    /// Reserves `bytes` for a request with code, of which no more is in memory at a time. If all of it would take more
    /// than the part, `all_bytes`, nobody else has such a request: one of the operator's namespace at a time, and one of
    /// all others, for which each namespace has a line of its own. Whoever lacks memory that its own namespace holds leaves
    /// its turn to others.
    pub async fn take_for_code(&self, all_bytes: usize, bytes: usize) -> Result<Held, NoRoom> {
        let most = self.payer.portion.of(self.bodies.large.most_for(Purpose::Request)) * UNIT;
        if all_bytes <= most {
            return self.take(Purpose::Request, bytes).await;
        }
        let until = Instant::now() + WAIT_FOR_TURN;
        loop {
            let turn = self.bodies.code.turn(&self.payer.namespace);
            let turn = timeout_at(until, turn).await.map_err(|_| NoRoom::Now)?;
            let (turn, held) = match self.take_now(Purpose::Request, bytes) {
                Err(NoRoom::OfPart) if Instant::now() < until => {
                    drop(turn);
                    let held = self.take(Purpose::Request, bytes).await?;
                    match self.bodies.code.turn_now(&self.payer.namespace) {
                        Some(turn) => (turn, held),
                        // Nobody waits for a turn with memory.
                        None => continue,
                    }
                }
                // The turn stays its own, also if its own requests become what is in the way: no longer than `WAIT`.
                Err(NoRoom::Now) => (turn, self.take(Purpose::Request, bytes).await?),
                taken => (turn, taken?),
            };
            return Ok(Held { turn: Mutex::new(Some(turn)), ..held });
        }
    }

    /// Reserves `bytes` for an answer. Waits for others to release theirs, for a limited time.
    pub async fn take_for_answer(&self, bytes: usize) -> Result<Held, NoRoom> {
        self.take(Purpose::Answer, bytes).await
    }

    /// Reserves `bytes` for an answer whose text, of `text_bytes`, is there already and has no reservation. Waits
    /// like [`Self::take_for_answer`], but only as long as there are not too many that do.
    pub async fn take_for_text(&self, bytes: usize, text_bytes: usize) -> Result<Held, NoRoom> {
        let (room, claim) = self.claim(Purpose::Answer, bytes)?;
        if let Ok(units) = room.take_now(claim) {
            return Ok(units.into());
        }
        let units = u32::try_from(text_bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let _waits =
            self.bodies.waiting_answers.try_acquire_many(units).map_err(|_| NoRoom::Now)?;
        self.take(Purpose::Answer, bytes).await
    }

    /// `bytes`, limited to the maximum of a single answer.
    pub fn at_most(&self, bytes: usize) -> usize {
        bytes.min(self.bodies.large.most_for(Purpose::Answer) * UNIT)
    }

    /// How much answers of this namespace may have together, in bytes.
    pub fn most_for_answers(&self) -> usize {
        self.payer.portion.of(self.bodies.large.most_for(Purpose::Answer)) * UNIT
    }

    async fn take(&self, purpose: Purpose, bytes: usize) -> Result<Held, NoRoom> {
        if let Ok(held) = self.take_now(purpose, bytes) {
            return Ok(held);
        }
        let (room, claim) = self.claim(purpose, bytes)?;
        room.take(claim, WAIT).await.map(Into::into)
    }

    fn take_now(&self, purpose: Purpose, bytes: usize) -> Result<Held, NoRoom> {
        let (room, claim) = self.claim(purpose, bytes)?;
        // What is small may have a place among what is large.
        let taken = room.take_now(claim.clone()).or_else(|_| self.bodies.large.take_now(claim));
        taken.map(Into::into)
    }

    fn claim(&self, purpose: Purpose, bytes: usize) -> Result<(&Arc<Room>, Claim), NoRoom> {
        let room = if bytes <= SMALL { &self.bodies.small } else { &self.bodies.large };
        let units = bytes.div_ceil(UNIT);
        if units > room.most_for(purpose) {
            return Err(NoRoom::Never);
        }
        Ok((room, Claim { payer: self.payer.clone(), purpose, units }))
    }
}

#[cfg(test)]
impl Payer {
    /// The operator, on a node without tenants.
    pub fn alone() -> Self {
        Self { namespace: Namespace::guest(), portion: Portion::All }
    }

    /// A tenant.
    pub fn named(name: &str) -> Self {
        Self { namespace: name.parse().unwrap(), portion: Portion::Quarter }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::bodies::{self, WAITING_OF_STRANGERS, share_for_strangers};
    use std::time::{Duration, Instant};

    #[tokio::test]
    async fn there_is_no_more_than_there_is() {
        let part = Bodies::new(64 << 20).part(Payer::alone());
        let most = part.at_most(usize::MAX);
        assert_eq!(most, 24 << 20);
        assert_eq!(part.take_for_request(most).await.err(), Some(NoRoom::Never));
        assert_eq!(part.take_for_answer(most + UNIT).await.err(), Some(NoRoom::Never));
        let all = part.take_for_answer(most).await.unwrap();
        assert!(!all.is_wanted());
        let small = part.take_for_answer(SMALL).await.unwrap();
        let (waits, ()) = tokio::join!(part.take_for_request(SMALL + 1), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(all.is_wanted() && !small.is_wanted());
        });
        assert_eq!(waits.err(), Some(NoRoom::Now));
        drop((all, small));
        let again = part.take_for_answer(most).await.unwrap();
        let sent = bodies::held(vec![0; 10], again);
        let piece = sent.slice(2..4);
        drop(sent);
        let all = || part.claim(Purpose::Answer, most).map(|(room, claim)| room.take_now(claim));
        assert!(all().unwrap().is_err());
        drop(piece);
        assert!(all().unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_namespace_that_has_its_part_keeps_nobody_waiting() {
        let bodies = Bodies::new(64 << 20);
        let (acme, other) = (bodies.part(Payer::named("acme")), bodies.part(Payer::named("other")));
        // More than its part, which nobody else could have had for a request either.
        let mut first = acme.take_for_request(5 << 20).await.unwrap();
        let (waits, ()) = tokio::join!(acme.take_for_request(1 << 20), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let begin = Instant::now();
            let of_other = other.take_for_request(4 << 20).await.unwrap();
            // Its answers have a part of their own.
            let answer = acme.take_for_answer(6 << 20).await.unwrap();
            assert!(begin.elapsed() < WAIT / 2);
            assert!(first.is_wanted() && !of_other.is_wanted() && !answer.is_wanted());
        });
        assert_eq!(waits.err(), Some(NoRoom::OfPart));
        first.shrink_to(3 << 20);
        assert!(acme.take_for_request(1 << 20).await.is_ok());
    }

    #[tokio::test]
    async fn what_is_made_of_a_request_is_within_the_part() {
        let acme = Bodies::new(64 << 20).part(Payer::named("acme"));
        let mut held = acme.take_for_request(4 << 20).await.unwrap();
        assert_eq!(held.grow_now(1 << 20), Err(NoRoom::Never));
        assert_eq!(held.grow_now(1 << 19), Ok(()));
    }

    #[tokio::test]
    async fn code_that_is_larger_than_the_part_comes_one_at_a_time() {
        let bodies = Bodies::new(64 << 20);
        let (acme, other) = (bodies.part(Payer::named("acme")), bodies.part(Payer::named("other")));
        let first = acme.take_for_code(16 << 20, 1 << 20).await.unwrap();
        assert!(!first.is_wanted());
        let (waits, ()) = tokio::join!(other.take_for_code(16 << 20, 1 << 20), async {
            // Whoever is slow meanwhile has to go.
            assert!(first.is_wanted());
            // All others go on, and the rest of its part can be had.
            drop(other.take_for_code(4 << 20, 1 << 20).await.unwrap());
            drop(acme.take_for_request(3 << 20).await.unwrap());
            let guest = bodies.part(Payer { portion: Portion::ThreeQuarters, ..Payer::alone() });
            drop(guest.take_for_code(16 << 20, 1 << 20).await.unwrap());
            // Its memory is still its own.
            drop(first.take_turn());
        });
        assert!(waits.is_ok() && !first.is_wanted());
    }

    #[tokio::test]
    async fn who_sends_much_code_all_the_time_keeps_others_waiting_for_one_request() {
        let bodies = Bodies::new(64 << 20);
        let (acme, other) = (bodies.part(Payer::named("acme")), bodies.part(Payer::named("other")));
        let first = acme.take_for_code(16 << 20, 1 << 20).await.unwrap();
        let mut own: Vec<_> =
            (0..3).map(|_| Box::pin(acme.take_for_code(16 << 20, 1 << 20))).collect();
        for one in &mut own {
            assert!(tokio::time::timeout(Duration::from_millis(1), one).await.is_err());
        }
        let (of_other, ()) =
            tokio::join!(other.take_for_code(16 << 20, 1 << 20), async { drop(first) });
        assert!(of_other.is_ok());
    }

    #[tokio::test]
    async fn who_lacks_what_its_own_requests_hold_leaves_its_turn_to_others() {
        let bodies = Bodies::new(64 << 20);
        let (acme, other) = (bodies.part(Payer::named("acme")), bodies.part(Payer::named("other")));
        let held = acme.take_for_request(4 << 20).await.unwrap();
        let (of_acme, ()) = tokio::join!(acme.take_for_code(16 << 20, 1 << 20), async {
            drop(other.take_for_code(16 << 20, 1 << 20).await.unwrap());
            drop(held);
        });
        assert!(of_acme.unwrap().take_turn().is_some());
        let _all = acme.take_for_request(4 << 20).await.unwrap();
        assert_eq!(acme.take_for_code(16 << 20, 1 << 20).await.err(), Some(NoRoom::OfPart));
    }

    #[tokio::test]
    async fn two_of_a_namespace_that_wait_for_memory_do_not_pass_it_to_each_other_for_ever() {
        let acme = Bodies::new(64 << 20).part(Payer::named("acme"));
        let held = acme.take_for_request(4 << 20).await.unwrap();
        let code = async || acme.take_for_code(16 << 20, 1 << 20).await.map(drop);
        let (first, second, ()) = tokio::join!(code(), code(), async { drop(held) });
        assert_eq!((first, second), (Ok(()), Ok(())));
    }

    #[tokio::test]
    async fn small_ones_have_places_among_large_ones() {
        let acme = Bodies::new(64 << 20).part(Payer::named("acme"));
        let mut all = Vec::new();
        // A quarter of three quarters of all of it.
        while all.len() < (6 << 20) / SMALL {
            all.push(acme.take_for_request(SMALL).await.unwrap());
        }
        assert_eq!(acme.take_for_request(SMALL).await.err(), Some(NoRoom::OfPart));
    }

    #[tokio::test]
    async fn answers_of_strangers_wait_only_if_few_of_them_do() {
        let part = Bodies::for_strangers(share_for_strangers(0)).part(Payer::alone());
        let mut all = part.take_for_answer(part.at_most(usize::MAX)).await.unwrap();
        let answer = || part.take_for_text(1 << 20, WAITING_OF_STRANGERS);
        let (first, second) = tokio::join!(answer(), async {
            let begin = Instant::now();
            let second = part.take_for_text(1 << 20, UNIT).await;
            assert!(begin.elapsed() < WAIT / 2, "it is refused at once");
            // The rest stays reserved.
            all.shrink_to(8 << 20);
            second
        });
        assert_eq!(second.err(), Some(NoRoom::Now));
        assert!(first.is_ok() && part.take_for_answer(SMALL).await.is_ok());
        assert!(answer().await.is_err());
        drop((all, first));
        assert!(answer().await.is_ok());
    }
}
