//! What everybody in the soak shares.

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
    /// The function's name, which is nobody else's on this machine.
    pub function: String,
    /// Another one, which has a VM of its own.
    pub other_function: String,
    action: String,
    other_action: String,
    endpoint: RwLock<Endpoint>,
    /// Who makes calls holds it for reading.
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
            function,
            other_function,
            endpoint: RwLock::default(),
            gate: RwLock::default(),
            over: AtomicBool::new(false),
            names: AtomicU64::new(0),
        }
    }

    /// Where the function is called.
    pub fn action(&self) -> &str {
        &self.action
    }

    /// Where the other function is called.
    pub fn other_action(&self) -> &str {
        &self.other_action
    }

    /// Where the daemon listens now.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on there is another daemon.
    pub fn moved(&self, address: &str, authorization: &str) {
        let mut endpoint = self.endpoint.write().unwrap_or_else(PoisonError::into_inner);
        let generation = endpoint.generation + 1;
        let (address, authorization) = (address.to_owned(), authorization.to_owned());
        *endpoint = Endpoint { address, authorization, generation };
    }

    /// A name that no other call has.
    pub fn new_name(&self) -> String {
        format!("caller {}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// For whoever makes calls: waits while nobody is to make any. Nothing when it is over.
    pub fn calling(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let calling = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        (!self.is_over()).then_some(calling)
    }

    /// Waits until every call has its answer; none is made until what this returns is dropped.
    pub fn silence(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for so long, or for the end; whether it goes on.
    pub fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.is_over() {
            std::thread::sleep(Duration::from_millis(20));
        }
        !self.is_over()
    }

    /// Lets those who call come to their end.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}
