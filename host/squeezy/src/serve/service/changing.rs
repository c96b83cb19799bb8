//! Changes come one at a time, because they involve the node and the disk. A namespace that makes many waits behind
//! itself: others wait for one of them at most, and the operator waits in no line.

use super::{ServiceError, State};
use crate::serve::lines::{Lines, Turn};
use squeezy_openwhisk::Namespace;
use std::ops::{Deref, DerefMut};
use tokio::sync::{Mutex, MutexGuard};

/// How many changes of a namespace may wait: as many as there are connections. There are more only of clients that do not
/// wait for them.
const MOST_WAITING: usize = 1024;

/// The state, which one changes at a time.
pub(super) struct Changing {
    lines: Lines,
    state: Mutex<State>,
}

/// The state, for whoever has the turn to change it, until this is dropped.
pub(super) struct Changes<'a> {
    state: MutexGuard<'a, State>,
    /// The operator needs none. It is over after the state has been released.
    _turn: Option<Turn>,
}

impl Changing {
    pub(super) fn new(state: State) -> Self {
        Self { lines: Lines::new(1), state: Mutex::new(state) }
    }

    /// Waits for the turn of a namespace, unless too many of its changes do.
    pub(super) async fn of(&self, namespace: &Namespace) -> Result<Changes<'_>, ServiceError> {
        if self.lines.length(namespace) >= MOST_WAITING {
            return Err(ServiceError::TooManyChanges);
        }
        let turn = self.lines.turn(namespace).await;
        Ok(Changes { state: self.state.lock().await, _turn: Some(turn) })
    }

    /// For the operator, who waits for those whose turn it is.
    pub(super) async fn of_operator(&self) -> Changes<'_> {
        Changes { state: self.state.lock().await, _turn: None }
    }
}

impl Deref for Changes<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Changes<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn changing() -> (Changing, TempDir) {
        let directory = tempfile::tempdir().unwrap();
        (Changing::new(State::open(directory.path()).unwrap()), directory)
    }

    #[tokio::test]
    async fn who_changes_much_keeps_others_waiting_for_one_change() {
        let (changing, _directory) = changing();
        let order = std::sync::Mutex::new(Vec::new());
        let change = async |namespace: &'static str| {
            let _changes = changing.of(&namespace.parse().unwrap()).await.unwrap();
            order.lock().unwrap().push(namespace);
        };
        let first = changing.of(&"acme".parse().unwrap()).await.unwrap();
        let operator = async {
            let _changes = changing.of_operator().await;
            order.lock().unwrap().push("operator");
        };
        // They come in this order.
        let release = async { drop(first) };
        tokio::join!(
            change("acme"),
            change("acme"),
            change("other"),
            change("guest"),
            operator,
            release
        );
        let order = order.into_inner().unwrap();
        assert_eq!(order, ["guest", "operator", "other", "acme", "acme"]);
    }

    #[tokio::test]
    async fn changes_for_which_nobody_waits_any_more_are_bounded() {
        let (changing, _directory) = changing();
        let acme: Namespace = "acme".parse().unwrap();
        let has = changing.of(&acme).await.unwrap();
        let mut waiting: Vec<_> = (1..MOST_WAITING).map(|_| Box::pin(changing.of(&acme))).collect();
        for one in &mut waiting {
            tokio::select! {
                biased;
                _ = one => unreachable!("another one has the turn"),
                () = std::future::ready(()) => {}
            }
        }
        let refused = changing.of(&acme).await.err().map(|error| error.to_string());
        let right = "Too many changes of this namespace are waiting; try again later.";
        assert_eq!(refused.as_deref(), Some(right));
        let mut waiting = waiting.into_iter();
        let next = waiting.next().unwrap();
        drop((waiting, has));
        assert!(next.await.is_ok());
        assert!(changing.of(&acme).await.is_ok());
    }
}
