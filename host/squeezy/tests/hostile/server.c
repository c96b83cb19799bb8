/*
 * The server of a function that attacks its platform: POST /run with {"attack": "NAME NAME...",
 * "seconds": N} runs these attacks at once for N seconds. The answer says how far each got, and
 * how much memory and how many open files the guest has. An attack may also end the whole
 * instance.
 */
#define _GNU_SOURCE
#include "hostile.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PORT 8080
#define MAX_REQUEST (64 << 10)

struct attack *attacks;
char chunk[MIB];

void in_many_processes(void (*run)(void))
{
	for (;;) {
		pid_t pid = fork();

		if (pid < 0)
			return;
		if (!pid) {
			run();
			for (;;)
				pause();
		}
		/* One after another: each has taken its part before the next one starts. */
		usleep(20000);
	}
}

void in_many_threads(void *(*run)(void *))
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 64 << 10);
	while (!(errno = pthread_create(&thread, &attributes, run, NULL)))
		;
}

void fill(int fd)
{
	memset(chunk, 0x5a, sizeof(chunk));
	while (write(fd, chunk, sizeof(chunk)) > 0)
		;
}

void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

int tcp_listener(struct sockaddr_in *own, int backlog)
{
	socklen_t length = sizeof(*own);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	*own = (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (fd < 0 || bind(fd, (struct sockaddr *)own, length) || listen(fd, backlog) ||
	    getsockname(fd, (struct sockaddr *)own, &length))
		return -1;
	return fd;
}

int tcp_connection(const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)to, sizeof(*to))) {
		close(fd);
		return -1;
	}
	return fd;
}

static void start(const char *name, int report)
{
	struct attack *attack = attacks;
	char line[128];
	int length;

	while (attack && strcmp(name, attack->name))
		attack = attack->next;
	/* An unknown attack counts as ended. */
	if (!attack)
		dprintf(report, "%s: unknown;", name);
	if (!attack || fork())
		return;
	errno = 0;
	attack->run();
	length = snprintf(line, sizeof(line), "%s: %s;", attack->name, strerror(errno));
	/* It does not matter whether anybody listens. */
	if (write(report, line, length) < 0)
		pause();
	for (;;)
		pause();
}

/*
 * Removes what an attack left: all files, and all processes but this one and process 1, which is
 * another user's. Orphans become children of this process, and are waited for
 * until their resources are back. A fork meanwhile fails, because the process is being killed.
 */
static void clean_up(void)
{
	static const char * const directories[] = { "/tmp", "/dev/shm", "/dev", "/" };
	struct dirent *entry;
	unsigned int i;
	DIR *directory;

	kill(-1, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	for (i = 0; i < sizeof(directories) / sizeof(*directories); i++) {
		directory = opendir(directories[i]);
		while (directory && (entry = readdir(directory)))
			if (!strncmp(entry->d_name, "hostile-", 8))
				unlinkat(dirfd(directory), entry->d_name, 0);
		if (directory)
			closedir(directory);
	}
}

/*
 * Runs the attacks, started in this order, until each has ended or the time is over; returns how
 * far they got.
 */
static void run(char *names, unsigned int seconds, char *text, size_t size)
{
	int report[2], started = 0, ended = 0;
	time_t until = time(NULL) + seconds;
	size_t length = 0;
	char *name;

	if (pipe2(report, O_NONBLOCK | O_CLOEXEC)) {
		snprintf(text, size, "pipe: %s", strerror(errno));
		return;
	}
	for (name = strtok(names, " "); name; name = strtok(NULL, " ")) {
		start(name, report[1]);
		started++;
	}
	while (ended < started && time(NULL) < until) {
		ssize_t got = read(report[0], text + length, size - 1 - length);
		ssize_t i;

		for (i = 0; i < got; i++)
			ended += text[length + i] == ';';
		if (got > 0)
			length += got;
		else
			usleep(20000);
	}
	text[length] = 0;
	clean_up();
	close(report[0]);
	close(report[1]);
}

/* Reads a request; returns its length, or 0 if there was none. */
static size_t receive(int client, char *request)
{
	size_t length = 0, want = 0;

	while (length < MAX_REQUEST - 1) {
		ssize_t got = read(client, request + length, MAX_REQUEST - 1 - length);
		char *end, *field;

		if (got <= 0)
			return 0;
		length += got;
		request[length] = 0;
		end = strstr(request, "\r\n\r\n");
		if (!end)
			continue;
		field = strcasestr(request, "content-length:");
		want = end + 4 - request + (field ? strtoul(field + 15, NULL, 10) : 0);
		if (length >= want)
			return length;
	}
	return 0;
}

/* The number in the first line of this form in a file about the whole guest, or -1. */
static long number_in(const char *path, const char *form)
{
	long number = -1;
	char line[128];
	FILE *file = fopen(path, "re");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, form, &number) == 1)
			break;
	if (file)
		fclose(file);
	return number;
}

static void serve(int client)
{
	static char request[MAX_REQUEST], text[8192], body[9000], answer[10000];
	char names[4096] = "";
	const char *field;
	int length;

	if (!receive(client, request))
		return;
	if (!strncmp(request, "POST /run", 9)) {
		field = strstr(request, "\"attack\":\"");
		if (field)
			sscanf(field + 10, "%4095[a-z_0-9 ]", names);
		field = strstr(request, "\"seconds\":");
		run(names, field ? atoi(field + 10) : 1, text, sizeof(text));
		snprintf(body, sizeof(body),
			 "{\"came\":\"%s\",\"available_kib\":%ld,\"open_files\":%ld}", text,
			 number_in("/proc/meminfo", "MemAvailable: %ld"),
			 number_in("/proc/sys/fs/file-nr", "%ld"));
	} else {
		strcpy(body, "{}");
	}
	length = snprintf(answer, sizeof(answer),
			  "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
			  "Content-Length: %zu\r\nConnection: close\r\n\r\n%s", strlen(body), body);
	if (write(client, answer, length) != length)
		perror("answering");
}

/* The names of all attacks, for the test. */
static int list(void)
{
	struct attack *attack;

	for (attack = attacks; attack; attack = attack->next)
		puts(attack->name);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct rlimit files = { 65536, 65536 };
	int listener, client, one = 1;

	if (argc > 1 && !strcmp(argv[1], "list"))
		return list();
	/* Executed by an attack that needs its arguments. */
	if (argc > 1 && !strcmp(argv[1], "wait"))
		for (;;)
			pause();
	setrlimit(RLIMIT_NOFILE, &files);
	/* Otherwise orphans would go to process 1, and could not be waited for here. */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1)) {
		perror("adopting orphans");
		return 1;
	}
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 16)) {
		perror("listening");
		return 1;
	}
	for (;;) {
		client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (client < 0)
			continue;
		serve(client);
		close(client);
	}
}
