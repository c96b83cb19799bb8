// SPDX-License-Identifier: GPL-2.0-only
/*
 * llfree_benchmark=ROUNDS: how long allocating and freeing blocks of each order takes, in lines of
 * the kernel's log, at the end of booting. It calls what all of the kernel calls, so it measures
 * Linux' own allocator where LLFree has no memory.
 *
 * Under an emulator that counts instructions, a nanosecond is one.
 */
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/mmzone.h>
#include <linux/printk.h>
#include <linux/sizes.h>
#include <linux/vmalloc.h>

/* Blocks that are allocated before the first is freed, unless they are too large. */
#define MOST_BLOCKS 512
/* What all blocks of a round may have together. */
#define MOST_BYTES SZ_128M

static unsigned int rounds __initdata;

static int __init rounds_setup(char *value)
{
	return value ? kstrtouint(value, 0, &rounds) : -EINVAL;
}
early_param("llfree_benchmark", rounds_setup);

/* Allocates up to @count blocks of @order; how many there were. */
static unsigned int __init get(unsigned int order, unsigned int count,
			       struct page **page)
{
	gfp_t gfp = GFP_HIGHUSER_MOVABLE | __GFP_NOWARN;
	unsigned int got;

	if (order)
		gfp |= __GFP_COMP;
	for (got = 0; got < count; got++) {
		page[got] = alloc_pages(gfp, order);
		if (!page[got])
			break;
	}
	return got;
}

static void __init put(unsigned int order, unsigned int count,
		       struct page **page)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		__free_pages(page[i], order);
}

/* All blocks are allocated and then freed in the same order; then each by itself. */
static void __init measure(unsigned int order, struct page **page)
{
	const unsigned int blocks =
		min(MOST_BLOCKS, MOST_BYTES >> (PAGE_SHIFT + order));
	unsigned int got, i;
	u64 time[4];

	time[0] = ktime_get_ns();
	got = get(order, blocks, page);
	time[1] = ktime_get_ns();
	put(order, got, page);
	time[2] = ktime_get_ns();
	for (i = 0; i < got; i++)
		put(order, get(order, 1, page), page);
	time[3] = ktime_get_ns();
	if (got < blocks) {
		pr_warn("llfree benchmark: there are no %u blocks of order %u\n",
			blocks, order);
		return;
	}
	pr_info("llfree benchmark: {\"order\":%u,\"blocks\":%u,\"get_ns\":%llu,\"put_ns\":%llu,\"pair_ns\":%llu}\n",
		order, blocks, time[1] - time[0], time[2] - time[1],
		time[3] - time[2]);
}

static int __init measure_all(void)
{
	unsigned int round, order;
	struct page **page;

	if (!rounds)
		return 0;
	page = vmalloc_array(MOST_BLOCKS, sizeof(*page));
	if (!page)
		return -ENOMEM;
	for (round = 0; round < rounds; round++)
		for (order = 0; order <= MAX_PAGE_ORDER; order++)
			measure(order, page);
	vfree(page);
	pr_info("llfree benchmark: done\n");
	return 0;
}
late_initcall(measure_all);
