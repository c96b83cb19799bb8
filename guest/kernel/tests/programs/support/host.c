// SPDX-License-Identifier: GPL-2.0
/* See host.h. */
#define _GNU_SOURCE
#include "host.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define PORT_NAME	"org.squeezy.test"
#define LOCK		"/run/host-port.lock"
#define ANSWER_MS	30000
#define LINE_BYTES	256

/* The port's device file, found by its name; false when the VM has none. */
static bool find_port(char *path, size_t size)
{
	DIR *ports = opendir("/sys/class/virtio-ports");
	struct dirent *entry;
	bool found = false;

	while (ports && !found && (entry = readdir(ports))) {
		char file[300], name[64];

		snprintf(file, sizeof(file), "/sys/class/virtio-ports/%s/name", entry->d_name);
		found = entry->d_name[0] != '.' && read_text(file, name, sizeof(name)) &&
			!strcmp(name, PORT_NAME);
		if (found)
			snprintf(path, size, "/dev/%s", entry->d_name);
	}
	if (ports)
		closedir(ports);
	return found;
}

void require_host(void)
{
	char path[300];

	if (!find_port(path, sizeof(path)))
		skip("the VM has no virtio-serial port " PORT_NAME);
}

static int read_byte(int fd, char *byte)
{
	struct pollfd p = { fd, POLLIN, 0 };

	if (poll(&p, 1, ANSWER_MS) != 1)
		return 0;
	return read(fd, byte, 1);
}

/* Sends one line and returns the number in the answer "ok NUMBER". */
static u64 ask(const char *fmt, ...)
{
	char path[300], text[LINE_BYTES], answer[LINE_BYTES];
	int fd, lock, used;
	size_t got = 0;
	va_list ap;

	va_start(ap, fmt);
	used = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!find_port(path, sizeof(path)))
		skip("the VM has no virtio-serial port " PORT_NAME);
	/* A port has one reader at a time, and an answer belongs to its question. */
	lock = OK(open(LOCK, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
	OK(flock(lock, LOCK_EX));
	fd = open(path, O_RDWR | O_CLOEXEC);
	ASSERT(fd >= 0, "%s: %m", path);
	ASSERT_EQ(write(fd, text, used), used);
	while (got < sizeof(answer) - 1) {
		ASSERT(read_byte(fd, answer + got) == 1, "no answer from the host to '%.*s'",
		       used - 1, text);
		if (answer[got] == '\n')
			break;
		got++;
	}
	answer[got] = 0;
	close(fd);
	close(lock);
	ASSERT(!strncmp(answer, "ok ", 3), "the host answers '%s' to '%.*s'", answer, used - 1,
	       text);
	return strtoull(answer + 3, NULL, 10);
}

void host_request_size(u64 bytes)
{
	ask("request %llu\n", bytes);
}

u64 host_size(void)
{
	return ask("size\n");
}

bool host_wait_size(u64 bytes, unsigned int ms)
{
	return WAIT_FOR(host_size() == bytes, ms);
}

void host_resize(u64 bytes, unsigned int ms)
{
	host_request_size(bytes);
	ASSERT(host_wait_size(bytes, ms), "asked for %llu MiB, %u ms later it has %llu MiB%s%s",
	       bytes / MIB, ms, host_size() / MIB,
	       have_partitions() ? "; shrink_blocked: " : "",
	       have_partitions() ? shrink_blocked() : "");
}

u64 host_resident(void)
{
	return ask("resident\n");
}

u64 host_base_resident(void)
{
	return ask("base-resident\n");
}

u64 host_device_cpu_ns(void)
{
	return ask("device-cpu\n");
}

void host_device_busy(bool busy)
{
	ask("busy %d\n", busy);
}

#define STATE "/sys/kernel/mm/llfree/state"

/* Where the kernel says that LLFree's state is. */
static void find_state(u64 *address, u64 *bytes)
{
	char text[64];

	ASSERT(read_text(STATE, text, sizeof(text)), "%s: %m", STATE);
	ASSERT(sscanf(text, "%llx %llu", address, bytes) == 2, "%s", text);
}

void host_take(void)
{
	u64 address, bytes;

	find_state(&address, &bytes);
	ask("take %llu %llu\n", address, bytes);
}

void host_rest(bool rests)
{
	ask("rest %d\n", rests);
}

void host_die(const char *zone, unsigned int kept, unsigned int in_hand)
{
	u64 address, bytes;

	find_state(&address, &bytes);
	ask("die %llu %llu %s %u %u\n", address, bytes, zone, kept, in_hand);
}

void host_take_over(const char *zone, unsigned int kept)
{
	u64 address, bytes;

	find_state(&address, &bytes);
	ask("take-over %llu %llu %s %u\n", address, bytes, zone, kept);
}

void host_relieve(const char *zone, unsigned int left, unsigned int kept, const char *disturbed)
{
	u64 address, bytes;

	find_state(&address, &bytes);
	ask("relieve %llu %llu %s %u %u %s\n", address, bytes, zone, left, kept,
	    disturbed ? disturbed : "nobody");
}

void host_relieved(void)
{
	ask("relieved\n");
}

u64 host_kept_used(void)
{
	return ask("kept-used\n");
}

u64 host_boot(void)
{
	return ask("boot\n");
}

u64 size_of_partitions(int count)
{
	return shared_bytes() + count * partition_bytes();
}

void host_partitions(int count, unsigned int ms)
{
	u64 bytes = size_of_partitions(count);

	host_resize(bytes, ms);
	/* The device is told before the guest has put its books in order. */
	ASSERT(WAIT_FOR(partitions_in_state("plugging") + partitions_in_state("unplugging") +
			partitions_in_state("populating") == 0, ms), "not settled");
}

void require_image_file(const char *name)
{
	char file[300], path[300], serial[64];
	DIR *drives = opendir("/sys/block");
	struct dirent *entry;

	snprintf(file, sizeof(file), IMAGE "%s", name);
	/* Another test may have mounted it. */
	while (access(file, R_OK) && drives && (entry = readdir(drives))) {
		snprintf(path, sizeof(path), "/sys/block/%s/serial", entry->d_name);
		if (!read_text(path, serial, sizeof(serial)) || strcmp(serial, "image-0"))
			continue;
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		mkdir(IMAGE, 0755);
		if (mount(path, IMAGE, "erofs", MS_RDONLY, NULL))
			FAIL("mount %s: %m", path);
	}
	if (drives)
		closedir(drives);
	if (access(file, R_OK))
		skip("there is no drive with the serial number image-0 and a file %s", name);
}
