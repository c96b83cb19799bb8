// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/mm/squeezy: what docs/abi.md lists.
 */
#include <linux/capability.h>
#include <linux/kobject.h>
#include <linux/mm.h>
#include <linux/sysfs.h>

#include "core.h"
#include "counters.h"
#include "device.h"
#include "doom.h"
#include "report.h"
#include "sysfs.h"
#include "zone.h"

#define SQUEEZY_RO(_name) \
	static struct kobj_attribute _name##_attribute = __ATTR_RO(_name)

static ssize_t partition_size_show(struct kobject *kobj,
				   struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", squeezy_partition_size());
}

SQUEEZY_RO(partition_size);

static ssize_t shared_size_show(struct kobject *kobj,
				struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", squeezy_shared_size());
}

SQUEEZY_RO(shared_size);

static ssize_t partitions_show(struct kobject *kobj,
			       struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", squeezy_layout.nr);
}

SQUEEZY_RO(partitions);

/* States in which a partition cannot be unplugged, with how many there are. */
static ssize_t shrink_blocked_show(struct kobject *kobj,
				   struct kobj_attribute *attr, char *buf)
{
	unsigned int counts[SQUEEZY_NR_STATES];
	ssize_t length = 0;
	unsigned int state;

	if (squeezy_surplus(counts)) {
		for (state = 0; state < SQUEEZY_NR_STATES; state++) {
			if (!counts[state] || state == SQUEEZY_ABSENT ||
			    state == SQUEEZY_UNPLUGGED)
				continue;
			length += sysfs_emit_at(buf, length, "%s%s %u",
						length ? " " : "",
						squeezy_state_names[state],
						counts[state]);
		}
	}
	return length + sysfs_emit_at(buf, length, "\n");
}

SQUEEZY_RO(shrink_blocked);

static struct attribute *squeezy_attributes[] = {
	&partition_size_attribute.attr,
	&shared_size_attribute.attr,
	&partitions_attribute.attr,
	&shrink_blocked_attribute.attr,
	NULL
};

static const struct attribute_group squeezy_group = {
	.attrs = squeezy_attributes,
};

static struct kobj_attribute squeezy_counter_files[SQUEEZY_NR_COUNTERS];

static ssize_t squeezy_counter_show(struct kobject *kobj,
				    struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lld\n",
		atomic64_read(&squeezy_counters[attr - squeezy_counter_files]));
}

static int squeezy_create_counters(struct kobject *root)
{
	struct kobject *directory = kobject_create_and_add("counters", root);
	unsigned int i;
	int rc;

	if (!directory)
		return -ENOMEM;
	for (i = 0; i < SQUEEZY_NR_COUNTERS; i++) {
		struct kobj_attribute *file = &squeezy_counter_files[i];

		sysfs_attr_init(&file->attr);
		file->attr.name = squeezy_counter_names[i];
		file->attr.mode = 0444;
		file->show = squeezy_counter_show;
		rc = sysfs_create_file(directory, &file->attr);
		if (rc)
			return rc;
	}
	return 0;
}

static struct squeezy_partition *to_partition(struct kobject *kobj)
{
	return container_of(kobj, struct squeezy_partition, kobj);
}

static ssize_t state_show(struct kobject *kobj, struct kobj_attribute *attr,
			  char *buf)
{
	return sysfs_emit(buf, "%s\n",
		squeezy_state_names[READ_ONCE(to_partition(kobj)->state)]);
}

SQUEEZY_RO(state);

static ssize_t users_show(struct kobject *kobj, struct kobj_attribute *attr,
			  char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(to_partition(kobj)->users));
}

SQUEEZY_RO(users);

static ssize_t start_address_show(struct kobject *kobj,
				  struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n",
			  PFN_PHYS(to_partition(kobj)->start_pfn));
}

SQUEEZY_RO(start_address);

static ssize_t managed_bytes_show(struct kobject *kobj,
				  struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n",
		PFN_PHYS(squeezy_managed_pages(to_partition(kobj))));
}

SQUEEZY_RO(managed_bytes);

static ssize_t free_bytes_show(struct kobject *kobj,
			       struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n",
		PFN_PHYS(squeezy_pages_available(to_partition(kobj))));
}

SQUEEZY_RO(free_bytes);

static ssize_t partition_oom_kills_show(struct kobject *kobj,
					struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%ld\n",
			  atomic_long_read(&to_partition(kobj)->oom_kills));
}

static struct kobj_attribute partition_oom_kills_attribute = {
	.attr = { .name = "oom_kills", .mode = 0444 },
	.show = partition_oom_kills_show,
};

static ssize_t partition_reported_bytes_show(struct kobject *kobj,
					     struct kobj_attribute *attr,
					     char *buf)
{
	return sysfs_emit(buf, "%lld\n",
			  atomic64_read(&to_partition(kobj)->reported_bytes));
}

static struct kobj_attribute partition_reported_bytes_attribute = {
	.attr = { .name = "reported_bytes", .mode = 0444 },
	.show = partition_reported_bytes_show,
};

/* An order, or an empty line for that of a huge page. */
static ssize_t report_store(struct kobject *kobj, struct kobj_attribute *attr,
			    const char *buf, size_t count)
{
	unsigned int order = pageblock_order;
	int rc;

	if (!capable(CAP_SYS_RESOURCE))
		return -EPERM;
	if (!sysfs_streq(buf, "") &&
	    (kstrtouint(buf, 10, &order) || order > MAX_PAGE_ORDER))
		return -EINVAL;
	rc = squeezy_report_partition(to_partition(kobj), order);
	return rc ?: count;
}

static struct kobj_attribute report_attribute = __ATTR_WO(report);

static ssize_t doom_show(struct kobject *kobj, struct kobj_attribute *attr,
			 char *buf)
{
	return sysfs_emit(buf, "%d\n", READ_ONCE(to_partition(kobj)->doomed));
}

static ssize_t doom_store(struct kobject *kobj, struct kobj_attribute *attr,
			  const char *buf, size_t count)
{
	struct squeezy_partition *p = to_partition(kobj);
	bool doom;
	int rc;

	if (!capable(CAP_SYS_RESOURCE))
		return -EPERM;
	rc = kstrtobool(buf, &doom);
	if (!rc)
		rc = doom ? squeezy_doom(p) : squeezy_undoom(p);
	return rc ?: count;
}

static struct kobj_attribute doom_attribute = __ATTR_RW(doom);

static struct attribute *partition_attrs[] = {
	&state_attribute.attr,
	&users_attribute.attr,
	&start_address_attribute.attr,
	&managed_bytes_attribute.attr,
	&free_bytes_attribute.attr,
	&partition_oom_kills_attribute.attr,
	&partition_reported_bytes_attribute.attr,
	&report_attribute.attr,
	&doom_attribute.attr,
	NULL
};
ATTRIBUTE_GROUPS(partition);

/* Partitions are there until the machine goes down. */
static void squeezy_partition_release(struct kobject *kobj)
{
}

static const struct kobj_type squeezy_partition_type = {
	.release = squeezy_partition_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = partition_groups,
};

/**
 * squeezy_init_sysfs - make all files
 *
 * Return: 0 or -ENOMEM, with some of the files there.
 */
int squeezy_init_sysfs(void)
{
	struct kobject *root = kobject_create_and_add("squeezy", mm_kobj);
	struct squeezy_partition *p;
	int rc;

	if (!root)
		return -ENOMEM;
	rc = sysfs_create_group(root, &squeezy_group);
	if (!rc)
		rc = squeezy_create_counters(root);
	squeezy_for_each_partition(p) {
		if (rc)
			break;
		rc = kobject_init_and_add(&p->kobj, &squeezy_partition_type,
					  root, "partition%u", p->number);
	}
	return rc;
}
