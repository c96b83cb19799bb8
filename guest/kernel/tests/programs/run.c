// SPDX-License-Identifier: GPL-2.0
/*
 * Runs the programs named on its command line, one after another: as the guest's init (the words
 * after "--" on the kernel command line) or as an ordinary command. A word is NAME or NAME:TEST
 * for one test of it. TAP goes to the virtio-serial port org.squeezy.tap where there is one, so
 * that the kernel log cannot get in between, else to stdout.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DIRECTORY "/selftests/"

static void mount_or_say(const char *type, const char *where, const char *options)
{
	mkdir(where, 0755);
	if (mount(type, where, type, 0, options) && errno != EBUSY)
		dprintf(1, "# %s on %s: %m\n", type, where);
}

static void set_up_guest(void)
{
	mount_or_say("proc", "/proc", NULL);
	mount_or_say("sysfs", "/sys", NULL);
	mount_or_say("devtmpfs", "/dev", NULL);
	mount_or_say("tmpfs", "/tmp", NULL);
	mount_or_say("tmpfs", "/run", NULL);
	mount_or_say("cgroup2", "/sys/fs/cgroup", NULL);
	mount_or_say("tracefs", "/sys/kernel/tracing", NULL);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		dprintf(1, "# %s: %m\n", path);
	if (fd >= 0)
		close(fd);
}

static void write_tap_to_port(void)
{
	DIR *ports = opendir("/sys/class/virtio-ports");
	struct dirent *entry;

	while (ports && (entry = readdir(ports))) {
		char path[300], name[64] = "";
		FILE *file;
		int fd;

		snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", entry->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		if (!fgets(name, sizeof(name), file))
			name[0] = 0;
		fclose(file);
		if (strcmp(name, "org.squeezy.tap\n"))
			continue;
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		fd = open(path, O_WRONLY);
		if (fd >= 0) {
			dup2(fd, STDOUT_FILENO);
			dup2(fd, STDERR_FILENO);
			close(fd);
		}
	}
	if (ports)
		closedir(ports);
}

/* Runs one program; its exit code, or 128 + the signal. */
static int run(const char *word)
{
	char path[128], *test;
	int status;
	pid_t pid;

	snprintf(path, sizeof(path), DIRECTORY "%s", word);
	test = strchr(path, ':');
	if (test)
		*test++ = 0;
	dprintf(1, "# program %s\n", word);
	pid = fork();
	if (!pid) {
		setsid();
		execl(path, path, test, NULL);
		dprintf(1, "Bail out! %s: %m\n", path);
		_exit(1);
	}
	if (pid < 0) {
		dprintf(1, "Bail out! fork: %m\n");
		return 1;
	}
	/* As init, reap what the tests leave behind as well. */
	for (;;) {
		pid_t got = wait(&status);

		if (got == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		if (got < 0 && errno != EINTR)
			return 1;
	}
}

int main(int argc, char **argv)
{
	int i, result, failed = 0;

	if (getpid() == 1) {
		set_up_guest();
		write_tap_to_port();
		/* With less than 512 MiB at boot Linux turns huge pages off. */
		write_file("/sys/kernel/mm/transparent_hugepage/enabled", "madvise");
	}
	for (i = 1; i < argc; i++) {
		result = run(argv[i]);
		failed |= result != 0 && result != 4;
		dprintf(1, "# program %s ended with %d\n", argv[i], result);
	}
	dprintf(1, "# all programs ended: %s\n", failed ? "failed" : "passed");
	if (getpid() == 1) {
		sync();
		reboot(RB_POWER_OFF);
		reboot(RB_AUTOBOOT);
	}
	return failed;
}
