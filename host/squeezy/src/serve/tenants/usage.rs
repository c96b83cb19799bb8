//! What a namespace has used.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

/// Memory of a namespace at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What its instances were promised, in bytes.
    pub promised_bytes: u64,
    /// What its VMs take of the host, in bytes.
    pub occupied_bytes: u64,
}

/// What a namespace has used since it was made.
#[derive(Debug, Default)]
pub struct Usage {
    calls: AtomicU64,
    promised_mib_ms: AtomicU64,
    occupied_mib_ms: AtomicU64,
    /// It has used something since this was last written.
    has_news: AtomicBool,
}

/// What it has used, as it is stored. Memory times time is in MiB times milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Calls that were begun.
    pub calls: u64,
    /// Memory that was promised to instances.
    pub promised_mib_ms: u64,
    /// Memory that VMs took of the host.
    pub occupied_mib_ms: u64,
}

impl Usage {
    /// Goes on from there.
    pub fn from(used: Used) -> Self {
        let Used { calls, promised_mib_ms, occupied_mib_ms } = used;
        let [calls, promised_mib_ms, occupied_mib_ms] =
            [calls, promised_mib_ms, occupied_mib_ms].map(AtomicU64::new);
        Self { calls, promised_mib_ms, occupied_mib_ms, has_news: AtomicBool::new(false) }
    }

    /// A call begins.
    pub fn call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.has_news.store(true, Ordering::Relaxed);
    }

    /// So much memory was used for so long.
    pub fn hold(&self, memory: Memory, time: Duration) {
        if memory == Memory::default() {
            return;
        }
        let mib_ms = |bytes: u64| {
            let product = (u128::from(bytes) * time.as_millis()) >> 20;
            u64::try_from(product).unwrap_or(u64::MAX)
        };
        self.promised_mib_ms.fetch_add(mib_ms(memory.promised_bytes), Ordering::Relaxed);
        self.occupied_mib_ms.fetch_add(mib_ms(memory.occupied_bytes), Ordering::Relaxed);
        self.has_news.store(true, Ordering::Relaxed);
    }

    /// Until now.
    pub fn used(&self) -> Used {
        let [calls, promised_mib_ms, occupied_mib_ms] =
            [&self.calls, &self.promised_mib_ms, &self.occupied_mib_ms]
                .map(|count| count.load(Ordering::Relaxed));
        Used { calls, promised_mib_ms, occupied_mib_ms }
    }

    /// Whether something was used since this was last asked for.
    pub fn forget_news(&self) -> bool {
        self.has_news.swap(false, Ordering::Relaxed)
    }
}

impl Used {
    /// What was used, as clients receive it.
    pub fn describe(&self) -> Value {
        // A thousandth of a second of a MiB is not worth a digit.
        let gib_seconds = |mib_ms: u64| (mib_ms as f64 / 1024.0).round() / 1e3;
        json!({
            "calls": self.calls,
            "promised_gib_seconds": gib_seconds(self.promised_mib_ms),
            "occupied_gib_seconds": gib_seconds(self.occupied_mib_ms),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_by_the_time_that_it_is_held() {
        let usage = Usage::default();
        assert!(!usage.forget_news());
        usage.hold(Memory::default(), Duration::from_secs(1000));
        assert!(!usage.forget_news(), "nothing is no news");
        let memory = Memory { promised_bytes: 2 << 30, occupied_bytes: 512 << 20 };
        usage.hold(memory, Duration::from_millis(1500));
        usage.hold(memory, Duration::from_millis(500));
        usage.call();
        assert!(usage.forget_news() && !usage.forget_news());
        let right = json!({ "calls": 1, "promised_gib_seconds": 4.0, "occupied_gib_seconds": 1.0 });
        assert_eq!(usage.used().describe(), right);
        let again = Usage::from(usage.used());
        again.call();
        assert_eq!(again.used(), Used { calls: 2, ..usage.used() });
    }
}
