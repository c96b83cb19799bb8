// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/mm/llfree: what docs/abi.md lists.
 *
 * Only root reads it: it says where in the machine's memory things are, and how
 * much of its memory each instance uses at any moment.
 */
#include <linux/kobject.h>
#include <linux/mm.h>
#include <linux/sysfs.h>

#include "counters.h"
#include "sysfs.h"

static phys_addr_t state_address;
static u64 state_bytes;
static struct kobject *zones;

static ssize_t state_show(struct kobject *kobj, struct kobj_attribute *attr,
			  char *buf)
{
	return sysfs_emit(buf, "%#llx %llu\n", (u64)state_address, state_bytes);
}

static struct kobj_attribute state_attribute = __ATTR_RO_MODE(state, 0400);

static ssize_t counter_show(struct kobject *kobj, struct kobj_attribute *attr,
			    char *buf);

static struct kobj_attribute counter_files[LLFREE_COUNTERS] = {
	[LLFREE_EVICTED_ALLOCATIONS] =
		__ATTR(evicted_allocations, 0400, counter_show, NULL),
	[LLFREE_WAITS] = __ATTR(waits, 0400, counter_show, NULL),
	[LLFREE_WAIT_TIMEOUTS] = __ATTR(wait_timeouts, 0400, counter_show, NULL),
	[LLFREE_WAIT_KILLS] = __ATTR(wait_kills, 0400, counter_show, NULL),
	[LLFREE_INTERFERENCES] = __ATTR(interferences, 0400, counter_show, NULL),
};

static ssize_t counter_show(struct kobject *kobj, struct kobj_attribute *attr,
			    char *buf)
{
	return sysfs_emit(buf, "%ld\n",
			  atomic_long_read(&llfree_counters[attr - counter_files]));
}

static struct llfree_zone *to_view(struct kobject *kobj)
{
	return &container_of(kobj, struct llfree_kernel_zone, kobj)->view;
}

static ssize_t start_address_show(struct kobject *kobj,
				  struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", to_view(kobj)->start_page << PAGE_SHIFT);
}

static struct kobj_attribute start_address_attribute = __ATTR_RO_MODE(start_address, 0400);

static ssize_t free_bytes_show(struct kobject *kobj,
			       struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n",
			  llfree_free_pages(to_view(kobj)) << PAGE_SHIFT);
}

static struct kobj_attribute free_bytes_attribute = __ATTR_RO_MODE(free_bytes, 0400);

static u64 areas_bytes(u32 areas)
{
	return (u64)areas * LLFREE_AREA_PAGES << PAGE_SHIFT;
}

static ssize_t whole_bytes_show(struct kobject *kobj,
				struct kobj_attribute *attr, char *buf)
{
	const struct llfree_areas areas = llfree_count_areas(to_view(kobj));

	return sysfs_emit(buf, "%llu\n", areas_bytes(areas.whole));
}

static struct kobj_attribute whole_bytes_attribute = __ATTR_RO_MODE(whole_bytes, 0400);

static ssize_t evicted_bytes_show(struct kobject *kobj,
				  struct kobj_attribute *attr, char *buf)
{
	const struct llfree_areas areas = llfree_count_areas(to_view(kobj));

	return sysfs_emit(buf, "%llu\n", areas_bytes(areas.evicted));
}

static struct kobj_attribute evicted_bytes_attribute = __ATTR_RO_MODE(evicted_bytes, 0400);

static ssize_t held_bytes_show(struct kobject *kobj,
			       struct kobj_attribute *attr, char *buf)
{
	const struct llfree_areas areas = llfree_count_areas(to_view(kobj));

	return sysfs_emit(buf, "%llu\n", areas_bytes(areas.held));
}

static struct kobj_attribute held_bytes_attribute = __ATTR_RO_MODE(held_bytes, 0400);

static ssize_t reserve_bytes_show(struct kobject *kobj,
				  struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n",
			  (u64)llfree_load(&to_view(kobj)->live->reserve) << PAGE_SHIFT);
}

static struct kobj_attribute reserve_bytes_attribute = __ATTR_RO_MODE(reserve_bytes, 0400);

static struct attribute *zone_attrs[] = {
	&start_address_attribute.attr,
	&free_bytes_attribute.attr,
	&whole_bytes_attribute.attr,
	&evicted_bytes_attribute.attr,
	&held_bytes_attribute.attr,
	&reserve_bytes_attribute.attr,
	NULL
};
ATTRIBUTE_GROUPS(zone);

/* Zones are there until the machine goes down. */
static void zone_release(struct kobject *kobj)
{
}

static const struct kobj_type zone_type = {
	.release = zone_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = zone_groups,
};

/**
 * llfree_create_zone_files() - make the files of a zone
 * @kernel_zone: the zone
 *
 * Return: 0, or an error.
 */
int llfree_create_zone_files(struct llfree_kernel_zone *kernel_zone)
{
	if (!zones)
		return -ENOMEM;
	return kobject_init_and_add(&kernel_zone->kobj, &zone_type, zones, "%s",
				    kernel_zone->name);
}

/**
 * llfree_create_files() - make the files that there are once
 * @state: the physical address of the state
 * @bytes: of it
 *
 * Return: 0, or an error, with some of the files there.
 */
int llfree_create_files(phys_addr_t state, u64 bytes)
{
	struct kobject *root = kobject_create_and_add("llfree", mm_kobj);
	struct kobject *counters;
	unsigned int i;
	int rc;

	if (!root)
		return -ENOMEM;
	state_address = state;
	state_bytes = bytes;
	zones = kobject_create_and_add("zones", root);
	counters = kobject_create_and_add("counters", root);
	if (!zones || !counters)
		return -ENOMEM;
	rc = sysfs_create_file(root, &state_attribute.attr);
	for (i = 0; i < LLFREE_COUNTERS && !rc; i++)
		rc = sysfs_create_file(counters, &counter_files[i].attr);
	return rc;
}
