//! State that all parts of the soak share.

use crate::{exchange::Endpoint, ledger::Ledger};
use std::{
    sync::{
        PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

pub struct World {
    pub ledger: Ledger,
    /// The function's name, unique on this machine.
    pub function: String,
    /// The other function, which has its own VM.
    pub other_function: String,
    action: String,
    other_action: String,
    sequence: String,
    endpoint: RwLock<Endpoint>,
    /// Held for reading by those who make calls.
    gate: RwLock<()>,
    over: AtomicBool,
    names: AtomicU64,
}

impl World {
    pub fn new() -> Self {
        let name = |of| format!("{of}-{}", std::process::id());
        let action = |function: &str| format!("/api/v1/namespaces/_/actions/{function}");
        let (function, other_function) = (name("soak"), name("contender"));
        Self {
            ledger: Ledger::new(),
            action: action(&function),
            other_action: action(&other_function),
            sequence: action("chained"),
            function,
            other_function,
            endpoint: RwLock::default(),
            gate: RwLock::default(),
            over: AtomicBool::new(false),
            names: AtomicU64::new(0),
        }
    }

    /// The function's action.
    pub fn action(&self) -> &str {
        &self.action
    }

    /// The other function's action.
    pub fn other_action(&self) -> &str {
        &self.other_action
    }

    /// A sequence that has the function's action as its only component.
    pub fn sequence(&self) -> &str {
        &self.sequence
    }

    /// Where the daemon currently listens.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A new daemon has started.
    pub fn moved(&self, address: &str, authorization: &str) {
        let mut endpoint = self.endpoint.write().unwrap_or_else(PoisonError::into_inner);
        let (address, authorization) = (address.to_owned(), authorization.to_owned());
        *endpoint = Endpoint { address, authorization };
    }

    /// A name that no other call uses.
    pub fn new_name(&self) -> String {
        format!("caller {}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Waits while calls are suspended, and returns permission to make one; `None` once the soak is
    /// over.
    pub fn calling(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let calling = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        (!self.is_over()).then_some(calling)
    }

    /// Waits until every call has completed; no new one starts before the result is dropped.
    pub fn silence(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this time, or until the soak is over; returns whether it continues.
    pub fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.is_over() {
            std::thread::sleep(Duration::from_millis(20));
        }
        !self.is_over()
    }

    /// Tells clients to finish.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}
