//! What has happened.

use crate::{FunctionIndex, InstanceNumber, InstanceState, RequestNumber};

/// What has happened, as whoever carries out the [`crate::Command`]s tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody wants this function called.
    Request {
        /// The function.
        function: FunctionIndex,
        /// The request's number; not one that was used before.
        request: RequestNumber,
    },
    /// The memory of this instance is plugged.
    Plugged(InstanceNumber),
    /// The memory of this instance cannot be plugged, or not all of it.
    PlugFailed(InstanceNumber),
    /// The instance runs and takes requests.
    Started(InstanceNumber),
    /// The instance could not be started; parts of it may be there.
    StartFailed(InstanceNumber),
    /// The instance's request is answered, and the instance can take another one.
    Answered(InstanceNumber),
    /// The instance's request is answered with an error that the instance will not survive.
    Broken(InstanceNumber),
    /// The instance ended by itself. If it has a request, [`Event::Broken`] follows.
    Died(InstanceNumber),
    /// Every process of the instance is gone.
    Stopped(InstanceNumber),
    /// The host has the instance's memory back.
    Reclaimed(InstanceNumber),
    /// The guest did not give the instance's memory back, or not all of it.
    ReclaimFailed(InstanceNumber),
    /// Time has passed. To be sent when [`crate::Scaler::next_deadline`] is over.
    Tick,
    /// No more requests are taken, and everything is to end.
    Drain,
}

/// An [`Event`] that makes no sense as things stand: a mistake of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} makes no sense for an instance that is {}",
    .state.map_or_else(|| "not there".to_owned(), |state| format!("{state:?}")))]
pub struct Unexpected {
    /// The event.
    pub event: Event,
    /// How the instance it names stands; absent when there is none.
    pub state: Option<InstanceState>,
}
