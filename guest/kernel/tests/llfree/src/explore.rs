//! Every order that the accesses of several actors can have.
//!
//! An actor is a coroutine that stops before each access to the shared state, whether it is Rust or C. One actor
//! goes on for one access at a time; which one is a decision, and all decisions are tried, depth first. What is
//! explored is the code itself, not a model of it. The machine's own reordering is not: on x86 every change of an
//! entry is a full barrier, and loads are not reordered.

use corosensei::{Coroutine, CoroutineResult, Yielder, stack::DefaultStack};
use std::{cell::Cell, ptr};

/// Somebody who works on the state.
pub type Actor = Box<dyn FnOnce()>;

/// One run.
pub struct Scenario {
    /// Who works at the same time.
    pub actors: Vec<Actor>,
    /// While there is one, the first actor may be killed before any of its accesses, and then the last of these begins,
    /// which may be killed likewise.
    pub heirs: Vec<Actor>,
    /// What holds when all are done.
    pub check: Box<dyn FnOnce()>,
}

thread_local! {
    /// Where the actor that runs can stop; null outside of actors.
    static CURRENT: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
    /// Whether only those go on who may be killed.
    static OTHERS_ARE_HELD: Cell<bool> = const { Cell::new(false) };
    /// The guest's changes that have failed.
    static FAILED: Cell<u64> = const { Cell::new(0) };
}

/// Lets others go on, if an actor calls it: before each access, and where it does what takes long.
pub fn step() {
    let current = CURRENT.get();
    if !current.is_null() {
        // SAFETY: it is set while the coroutine that it belongs to runs, which is this one.
        unsafe { &*current }.suspend(());
    }
}

/// While others are held, only the actor that may be killed goes on, and after its death who comes next: as hosts do
/// while the guest stands still.
pub fn hold_others(are_held: bool) {
    OTHERS_ARE_HELD.set(are_held);
}

/// The same as [`step`] for the C code.
#[unsafe(no_mangle)]
extern "C" fn llfree_step() {
    step();
}

#[unsafe(no_mangle)]
extern "C" fn llfree_failed() {
    FAILED.set(FAILED.get() + 1);
}

/// How many changes of the guest's have failed on this thread, because another value was there than expected.
pub fn failed_changes() -> u64 {
    FAILED.get()
}

/// Lets actors go on in turns, each time one of them for one access, until all are done. Returns how many turns that
/// took. `choose` says whose turn it is, of so many that are left.
pub fn take_turns(actors: Vec<Actor>, mut choose: impl FnMut(usize) -> usize) -> u64 {
    let mut stacks = Vec::new();
    let begin = |actor| begin(actor, &mut stacks);
    let mut running: Vec<Running> = actors.into_iter().filter_map(begin).collect();
    let mut turns = 0;
    while !running.is_empty() {
        let chosen = choose(running.len());
        turns += 1;
        if !go_on(&mut running[chosen]) {
            running.swap_remove(chosen).end();
        }
    }
    turns
}

/// Runs `make`'s scenario in every order in which an actor that could go on is kept from it at most
/// `preemptions` times, and returns how many there were. A panic of any of them is one of the caller's, after a
/// line with the decisions.
pub fn explore(preemptions: u32, make: impl Fn() -> Scenario) -> u64 {
    let mut decisions = Decisions::default();
    let mut stacks = Vec::new();
    let mut runs = 0;
    loop {
        run(make(), preemptions, &mut decisions, &mut stacks);
        runs += 1;
        if !decisions.next() {
            return runs;
        }
    }
}

/// What was decided, of how many possibilities.
#[derive(Default)]
struct Decisions {
    made: Vec<(usize, usize)>,
    position: usize,
}

impl Decisions {
    fn decide(&mut self, possibilities: usize) -> usize {
        let position = self.position;
        self.position += 1;
        if let Some(&(chosen, of)) = self.made.get(position) {
            assert_eq!(of, possibilities, "a run is not determined by the decisions");
            return chosen;
        }
        self.made.push((0, possibilities));
        0
    }

    /// Goes on to the next run; false if that was the last one.
    fn next(&mut self) -> bool {
        self.position = 0;
        while let Some((chosen, of)) = self.made.pop() {
            if chosen + 1 < of {
                self.made.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

impl Drop for Decisions {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let made: Vec<_> = self.made.iter().map(|(chosen, _)| chosen).collect();
            eprintln!("the decisions were {made:?}");
        }
    }
}

struct Running {
    /// There until the end.
    coroutine: Option<Coroutine<(), (), (), DefaultStack>>,
    yielder: *const Yielder<(), ()>,
}

impl Running {
    /// Ends it where it is, and returns its stack.
    fn end(mut self) -> Option<DefaultStack> {
        let mut coroutine = self.coroutine.take()?;
        if !coroutine.done() {
            // SAFETY: what is on its stack is only forgotten.
            unsafe { coroutine.force_reset() };
        }
        Some(coroutine.into_stack())
    }
}

impl Drop for Running {
    /// After a failure, what is left in the middle is not unwound: it may be in C.
    fn drop(&mut self) {
        if let Some(coroutine) = self.coroutine.as_mut().filter(|coroutine| !coroutine.done()) {
            // SAFETY: as above.
            unsafe { coroutine.force_reset() };
        }
    }
}

/// Lets an actor come to its first access; nothing if it has none.
fn begin(actor: Actor, stacks: &mut Vec<DefaultStack>) -> Option<Running> {
    let stack = stacks.pop().unwrap_or_default();
    let coroutine = Coroutine::with_stack(stack, move |yielder, ()| {
        CURRENT.set(yielder);
        actor();
    });
    let mut running = Running { coroutine: Some(coroutine), yielder: ptr::null() };
    go_on(&mut running).then_some(running)
}

/// One access; whether there is another one to come.
fn go_on(running: &mut Running) -> bool {
    CURRENT.set(running.yielder);
    let result = running.coroutine.as_mut().map(|coroutine| coroutine.resume(()));
    running.yielder = CURRENT.replace(ptr::null());
    matches!(result, Some(CoroutineResult::Yield(())))
}

fn run(
    Scenario { actors, mut heirs, check }: Scenario,
    preemptions: u32,
    decisions: &mut Decisions,
    stacks: &mut Vec<DefaultStack>,
) {
    let mut left = preemptions;
    // It is known who may be killed.
    let mut running: Vec<(bool, Running)> = Vec::new();
    for (number, actor) in actors.into_iter().enumerate() {
        running.extend(begin(actor, stacks).map(|actor| (number == 0, actor)));
    }
    // Nobody has to be kept from anything at the start.
    let mut current = None;
    while !running.is_empty() {
        let may_go_on = |number: &usize| running[*number].0 || !OTHERS_ARE_HELD.get();
        let mut next: Vec<usize> = match current {
            Some(current) if left == 0 => vec![current],
            Some(current) => std::iter::once(current)
                .chain((0..running.len()).filter(|&other| other != current))
                .filter(may_go_on)
                .collect(),
            None => (0..running.len()).filter(may_go_on).collect(),
        };
        assert!(!next.is_empty(), "nobody is left to let the others go on");
        // One more: the death of the first, or of who came after it.
        let mortal = running.iter().position(|(mortal, _)| *mortal).filter(|_| !heirs.is_empty());
        let chosen = decisions.decide(next.len() + usize::from(mortal.is_some()));
        if chosen == next.len() {
            stacks.extend(running.remove(mortal.unwrap_or_default()).1.end());
            current = None;
            let heir = heirs.pop().and_then(|heir| begin(heir, stacks));
            running.extend(heir.map(|heir| (true, heir)));
            continue;
        }
        let chosen = next.swap_remove(chosen);
        if current.is_some_and(|current| current != chosen) {
            left -= 1;
        }
        if go_on(&mut running[chosen].1) {
            current = Some(chosen);
        } else {
            stacks.extend(running.remove(chosen).1.end());
            current = None;
        }
    }
    check();
}
