/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Everything that is counted since boot, with the name of its file in sysfs, which
 * docs/abi.md explains. Times are in ns.
 *
 * COUNTER() is what the includer makes of one, so there is no guard.
 */

/* Partitions plugged and unplugged, and attempts that failed */
COUNTER(PLUGS, "plugs")
COUNTER(UNPLUGS, "unplugs")
COUNTER(PLUG_FAILURES, "plug_failures")
COUNTER(UNPLUG_FAILURES, "unplug_failures")

/* Requests to the device to do so */
COUNTER(DEVICE_REQUESTS, "device_requests")

/* Time this took in the guest, and time the device took */
COUNTER(PLUG_GUEST_NS, "plug_guest_ns")
COUNTER(PLUG_DEVICE_NS, "plug_device_ns")
COUNTER(UNPLUG_GUEST_NS, "unplug_guest_ns")
COUNTER(UNPLUG_DEVICE_NS, "unplug_device_ns")

/* Assignments, those that had to wait, and those that waited in vain */
COUNTER(ASSIGNMENTS, "assignments")
COUNTER(WAITS, "waits")
COUNTER(WAIT_TIMEOUTS, "wait_timeouts")

/* Processes killed because their partition was full */
COUNTER(OOM_KILLS, "oom_kills")

/* Drains of every CPU's folio batches for full partitions */
COUNTER(LRU_DRAINS, "lru_drains")

/* Times an unused partition was left with pages, and how many */
COUNTER(QUARANTINES, "quarantines")
COUNTER(STRAGGLERS, "stragglers")

/* Reports of free blocks, and requests to the device for them */
COUNTER(REPORTS, "reports")
COUNTER(REPORTED_BYTES, "reported_bytes")
COUNTER(REPORTED_BLOCKS, "reported_blocks")
COUNTER(REPORT_REQUESTS, "report_requests")
COUNTER(REPORT_GUEST_NS, "report_guest_ns")
COUNTER(REPORT_DEVICE_NS, "report_device_ns")
