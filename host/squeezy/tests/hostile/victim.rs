//! The function that must not be affected.

use crate::common::Daemon;
use serde_json::json;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Calls the victim; the error says what is wrong with its response.
pub fn call(daemon: &Daemon) -> Result<(), String> {
    let path = "/namespaces/_/actions/html?blocking=true&result=true";
    let body = json!({ "username": "victim", "items": 100 });
    let (status, answer) = daemon.ask("POST", path, Some(body));
    let page = answer["html"].as_str().unwrap_or_default();
    let rows = page.matches("<tr class=\"item\">").count();
    if status == 200 && rows == 100 && page.contains("<title>100 items for victim</title>") {
        return Ok(());
    }
    let text: String = answer.to_string().chars().take(300).collect();
    Err(format!("status {status}, {rows} rows: {text}"))
}

/// Calls the victim continuously.
pub struct Victim {
    stop: Arc<AtomicBool>,
    calls: Arc<Mutex<Vec<Duration>>>,
    caller: Option<JoinHandle<Result<(), String>>>,
}

impl Victim {
    pub fn start(daemon: &Arc<Daemon>) -> Self {
        let (stop, calls) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (daemon, told, made) = (daemon.clone(), stop.clone(), calls.clone());
        let caller = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                let begin = Instant::now();
                call(&daemon)?;
                made.lock().unwrap().push(begin.elapsed());
            }
            Ok(())
        });
        Self { stop, calls, caller: Some(caller) }
    }

    /// The durations of calls since the last time.
    pub fn take(&self) -> Vec<Duration> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    /// Whether a call has failed; [`Self::end`] says how.
    pub fn is_hurt(&self) -> bool {
        self.caller.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Ends it, and fails if any of its calls failed.
    pub fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let caller = self.caller.take().expect("it ends once");
        caller.join().unwrap().expect("every call of the victim is answered");
    }
}

/// Also when the test fails: the calls keep the daemon alive.
impl Drop for Victim {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(wrong))) = self.caller.take().map(JoinHandle::join) {
            eprintln!("the victim: {wrong}");
        }
    }
}

/// The 99th percentile, if there are any calls.
pub fn p99(calls: &[Duration]) -> Option<Duration> {
    let mut calls = calls.to_vec();
    calls.sort_unstable();
    calls.get((calls.len() * 99).div_ceil(100).saturating_sub(1)).copied()
}
