/*
 * busybox's shell, but for a command that is nothing but the name of a program: that is executed as a file of the
 * image, which a test may have hidden. busybox executes its own programs without one.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "-c") && !argv[2][strspn(argv[2], "abcdefghijklmnopqrstuvwxyz")]) {
		execlp(argv[2], argv[2], NULL);
		fprintf(stderr, "%s: %s: %s\n", argv[0], argv[2], strerror(errno));
		return 126;
	}
	execv("/bin/busybox", argv);
	perror("/bin/busybox");
	return 127;
}
