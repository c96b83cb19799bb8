/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM llfree

#if !defined(_TRACE_LLFREE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_LLFREE_H

#include <linux/tracepoint.h>

/* A zone's pages are LLFree's from now on; all of them are allocated. */
TRACE_EVENT(llfree_zone,

	TP_PROTO(const char *zone, u64 start_pfn, u32 areas),

	TP_ARGS(zone, start_pfn, areas),

	TP_STRUCT__entry(
		__string(zone, zone)
		__field(u64, start_pfn)
		__field(u32, areas)
	),

	TP_fast_assign(
		__assign_str(zone);
		__entry->start_pfn = start_pfn;
		__entry->areas = areas;
	),

	TP_printk("zone=%s start_pfn=%#llx areas=%u", __get_str(zone),
		  __entry->start_pfn, __entry->areas)
);

/* There was no run of this order; free is in pages. */
TRACE_EVENT(llfree_alloc_failed,

	TP_PROTO(const char *zone, unsigned int order, unsigned int type,
		 u64 free),

	TP_ARGS(zone, order, type, free),

	TP_STRUCT__entry(
		__string(zone, zone)
		__field(unsigned int, order)
		__field(unsigned int, type)
		__field(u64, free)
	),

	TP_fast_assign(
		__assign_str(zone);
		__entry->order = order;
		__entry->type = type;
		__entry->free = free;
	),

	TP_printk("zone=%s order=%u type=%s free=%llu", __get_str(zone),
		  __entry->order,
		  __print_symbolic(__entry->type, { 0, "unmovable" },
				   { 1, "movable" }, { 2, "huge" }),
		  __entry->free)
);

/*
 * Somebody has waited for what the host had in hand. How it ended: given_back,
 * timed_out or killed.
 */
TRACE_EVENT(llfree_wait,

	TP_PROTO(const char *zone, u32 epoch, const char *end, s64 waited_us),

	TP_ARGS(zone, epoch, end, waited_us),

	TP_STRUCT__entry(
		__string(zone, zone)
		__string(end, end)
		__field(u32, epoch)
		__field(s64, waited_us)
	),

	TP_fast_assign(
		__assign_str(zone);
		__assign_str(end);
		__entry->epoch = epoch;
		__entry->waited_us = waited_us;
	),

	TP_printk("zone=%s epoch=%u end=%s waited_us=%lld", __get_str(zone),
		  __entry->epoch, __get_str(end), __entry->waited_us)
);

/* An allocation has failed across a change of the host's epoch: it is tried again. */
TRACE_EVENT(llfree_interfered,

	TP_PROTO(const char *zone, u32 before, u32 after),

	TP_ARGS(zone, before, after),

	TP_STRUCT__entry(
		__string(zone, zone)
		__field(u32, before)
		__field(u32, after)
	),

	TP_fast_assign(
		__assign_str(zone);
		__entry->before = before;
		__entry->after = after;
	),

	TP_printk("zone=%s epoch=%u -> %u", __get_str(zone), __entry->before,
		  __entry->after)
);

#endif /* _TRACE_LLFREE_H */

#include <trace/define_trace.h>
