//! Turns to ask registries and to pull: a registry that is slow for one namespace keeps no other one waiting, unless
//! several do the same, and the operator's never.

use crate::serve::lines::{Lines, Turn};
use squeezy_openwhisk::Namespace;

/// How many images are pulled at a time for the operator's namespace, and how many for all others, one for each: each
/// takes a processor, and the disk.
const AT_A_TIME: usize = 2;

/// How many requests to registries what a tag means are under way for the operator's namespace, and how many for all
/// others, one for each.
const MOST_ASKING: usize = 4;

/// Those who pull or ask, and those who wait for that.
pub struct Turns {
    to_pull: Lines,
    to_ask: Lines,
}

impl Turns {
    pub fn new() -> Self {
        Self { to_pull: Lines::new(AT_A_TIME), to_ask: Lines::new(MOST_ASKING) }
    }

    /// Waits for a namespace's turn to pull.
    pub async fn to_pull(&self, namespace: &Namespace) -> Turn {
        self.to_pull.turn(namespace).await
    }

    /// Waits for a namespace's turn to ask what a tag means.
    pub async fn to_ask(&self, namespace: &Namespace) -> Turn {
        self.to_ask.turn(namespace).await
    }
}
