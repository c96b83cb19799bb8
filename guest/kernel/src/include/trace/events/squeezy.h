/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM squeezy

#if !defined(_TRACE_SQUEEZY_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_SQUEEZY_H

#include <linux/tracepoint.h>

/* Every change of a partition's state; names as in sysfs. */
TRACE_EVENT(squeezy_state,

	TP_PROTO(unsigned int number, const char *from, const char *to,
		 unsigned int users),

	TP_ARGS(number, from, to, users),

	TP_STRUCT__entry(
		__field(unsigned int, number)
		__string(from, from)
		__string(to, to)
		__field(unsigned int, users)
	),

	TP_fast_assign(
		__entry->number = number;
		__assign_str(from);
		__assign_str(to);
		__entry->users = users;
	),

	TP_printk("partition=%u %s -> %s users=%u", __entry->number,
		  __get_str(from), __get_str(to), __entry->users)
);

/* Adjacent partitions were plugged or unplugged, or could not be; times in ns. */
TRACE_EVENT(squeezy_resize,

	TP_PROTO(unsigned int number, unsigned int count, bool plug, int result,
		 u64 guest_ns, u64 device_ns),

	TP_ARGS(number, count, plug, result, guest_ns, device_ns),

	TP_STRUCT__entry(
		__field(unsigned int, number)
		__field(unsigned int, count)
		__field(bool, plug)
		__field(int, result)
		__field(u64, guest_ns)
		__field(u64, device_ns)
	),

	TP_fast_assign(
		__entry->number = number;
		__entry->count = count;
		__entry->plug = plug;
		__entry->result = result;
		__entry->guest_ns = guest_ns;
		__entry->device_ns = device_ns;
	),

	TP_printk("partition=%u count=%u %s result=%d guest_ns=%llu device_ns=%llu",
		  __entry->number, __entry->count,
		  __entry->plug ? "plug" : "unplug", __entry->result,
		  __entry->guest_ns, __entry->device_ns)
);

/* An unused partition had pages left that per-CPU lists did not explain. */
TRACE_EVENT(squeezy_stragglers,

	TP_PROTO(unsigned int number, unsigned long left, unsigned long files),

	TP_ARGS(number, left, files),

	TP_STRUCT__entry(
		__field(unsigned int, number)
		__field(unsigned long, left)
		__field(unsigned long, files)
	),

	TP_fast_assign(
		__entry->number = number;
		__entry->left = left;
		__entry->files = files;
	),

	TP_printk("partition=%u left=%lu files=%lu",
		  __entry->number, __entry->left, __entry->files)
);

/* A full partition gave back what only reclaim could, in pages. */
TRACE_EVENT(squeezy_reclaim,

	TP_PROTO(unsigned int number, unsigned long reclaimed,
		 unsigned long split),

	TP_ARGS(number, reclaimed, split),

	TP_STRUCT__entry(
		__field(unsigned int, number)
		__field(unsigned long, reclaimed)
		__field(unsigned long, split)
	),

	TP_fast_assign(
		__entry->number = number;
		__entry->reclaimed = reclaimed;
		__entry->split = split;
	),

	TP_printk("partition=%u reclaimed=%lu split=%lu", __entry->number,
		  __entry->reclaimed, __entry->split)
);

/* Free blocks of an assigned partition were reported to the host; times in ns. */
TRACE_EVENT(squeezy_report,

	TP_PROTO(unsigned int number, unsigned int order, int result, u64 bytes,
		 u64 blocks, u64 requests, u64 guest_ns, u64 device_ns),

	TP_ARGS(number, order, result, bytes, blocks, requests, guest_ns,
		device_ns),

	TP_STRUCT__entry(
		__field(unsigned int, number)
		__field(unsigned int, order)
		__field(int, result)
		__field(u64, bytes)
		__field(u64, blocks)
		__field(u64, requests)
		__field(u64, guest_ns)
		__field(u64, device_ns)
	),

	TP_fast_assign(
		__entry->number = number;
		__entry->order = order;
		__entry->result = result;
		__entry->bytes = bytes;
		__entry->blocks = blocks;
		__entry->requests = requests;
		__entry->guest_ns = guest_ns;
		__entry->device_ns = device_ns;
	),

	TP_printk("partition=%u order=%u result=%d bytes=%llu blocks=%llu requests=%llu guest_ns=%llu device_ns=%llu",
		  __entry->number, __entry->order, __entry->result,
		  __entry->bytes, __entry->blocks, __entry->requests,
		  __entry->guest_ns, __entry->device_ns)
);

#endif /* _TRACE_SQUEEZY_H */

#include <trace/define_trace.h>
