//! Counts requests to virtio-mem devices, from the trace events that QEMU writes to its standard
//! error.

use crate::backend::DeviceRequests;

/// Sums over trace events. Other lines are left to the caller.
#[derive(Default)]
pub(super) struct RequestCounter {
    sum: DeviceRequests,
    /// When the current request arrived, in microseconds.
    since: Option<u64>,
}

impl RequestCounter {
    /// Processes a line of standard error, such as
    /// `4711@1763721600.123456:virtio_mem_unplug_request addr=0x140000000 nb_blocks=64`. Returns
    /// whether it was a trace event.
    pub(super) fn take(&mut self, line: &str) -> bool {
        let Some((stamp, event)) = line.split_once(":virtio_mem_") else { return false };
        let Some(now) = microseconds(stamp) else { return false };
        if event.starts_with("plug_request") {
            self.sum.plug += 1;
            self.since = Some(now);
        } else if event.starts_with("unplug_request") {
            self.sum.unplug += 1;
            self.since = Some(now);
        } else if let Some(since) = self.since.take() {
            self.sum.device_ns += now.saturating_sub(since) * 1000;
        }
        true
    }

    /// The sums so far.
    pub(super) fn sum(&self) -> DeviceRequests {
        self.sum
    }
}

fn microseconds(stamp: &str) -> Option<u64> {
    let (seconds, fraction) = stamp.split_once('@')?.1.split_once('.')?;
    Some(seconds.parse::<u64>().ok()?.checked_mul(1_000_000)? + fraction.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_and_timed() {
        let mut counter = RequestCounter::default();
        assert!(!counter.take("qemu-system-x86_64: some warning"));
        assert!(counter.take("7@10.999990:virtio_mem_unplug_request addr=0x1 nb_blocks=2"));
        assert!(counter.take("7@11.000005:virtio_mem_send_response type=0"));
        assert!(counter.take("7@12.000000:virtio_mem_plug_request addr=0x1 nb_blocks=2"));
        assert_eq!(counter.sum(), DeviceRequests { plug: 1, unplug: 1, device_ns: 15_000 });
    }
}
