//! How much many processors get in each other's way in LLFree: the guest's own code, compiled for this program, on
//! processors that do not exist. They take turns at random, each for one access to the shared state, as processors of
//! the same speed would. What is counted depends on no machine.

use squeezy_llfree_tests::{Actor, Guest, State, Type, failed_changes, step, take_turns};
use squeezy_load::Random;
use std::rc::Rc;

/// Areas of 2 MiB.
const AREAS: u32 = 512;
/// Pages that each processor allocates before it frees them, and how often.
const PAGES: u32 = 64;
const ROUNDS: u32 = 16;
/// Turns that the rest of a page fault takes, see README.md.
pub(super) const FAULT_TURNS: u32 = 55;

/// What all processors have needed together.
pub(super) struct Together {
    /// Pages allocated and freed.
    pub(super) operations_count: u64,
    /// Accesses to the shared state, which another processor can come between.
    pub(super) accesses_count: u64,
    /// Changes of the shared state that had to be tried again, because another processor had been there.
    pub(super) failed_count: u64,
}

/// Processors allocate and free single pages, each `turns` after its previous allocation.
pub(super) fn together(processors_count: u16, turns: u32, seed: u64) -> Together {
    // Actors have to own what they work on, and no one of them does. It is a few hundred KiB.
    let state: &'static State = Box::leak(Box::new(State::new(AREAS)));
    let guest = Rc::new(Guest::boot(state));
    let act = |_| -> Actor {
        let guest = guest.clone();
        Box::new(move || {
            for _ in 0..ROUNDS {
                let page = |_| {
                    let block = guest.get(0, Type::Movable).expect("most memory is free");
                    (0..turns).for_each(|_| step());
                    block
                };
                let blocks: Vec<_> = (0..PAGES).map(page).collect();
                blocks.into_iter().for_each(|block| guest.free(block));
            }
        })
    };
    let failed = failed_changes();
    let mut random = Random::new(seed);
    let taken = take_turns((0..processors_count).map(act).collect(), |left| random.below(left));
    let operations_count = u64::from(processors_count) * u64::from(ROUNDS * PAGES);
    Together {
        operations_count,
        accesses_count: taken - operations_count * u64::from(turns),
        failed_count: failed_changes() - failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_alone_never_tries_again_and_many_do() {
        let (one, spaced) = (together(1, 0, 1), together(1, FAULT_TURNS, 1));
        assert_eq!((one.failed_count, spaced.failed_count), (0, 0));
        assert_eq!(one.accesses_count, spaced.accesses_count);
        let (many, spaced) = (together(16, 0, 1), together(16, FAULT_TURNS, 1));
        assert_eq!(many.operations_count, 16 * one.operations_count);
        assert!(many.failed_count > spaced.failed_count && spaced.failed_count > 0);
        assert_eq!(together(16, 0, 1).accesses_count, many.accesses_count);
    }
}
