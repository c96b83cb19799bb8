/*
 * What Kubernetes' image `nonewprivs` runs, where it belongs to root and is setuid.
 */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	printf("Effective uid: %u\n", geteuid());
	return 0;
}
