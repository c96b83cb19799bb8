/*
 * The server of an image that has been pulled: answers each request with what it finds in the image,
 * and who it is.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT 8080
#define MAX_REQUEST (64 << 10)

static int is_whole(const char *request, size_t length)
{
	const char *end = strstr(request, "\r\n\r\n");
	const char *field = strcasestr(request, "content-length:");

	return end && length >= end + 4 - request + (field ? strtoul(field + 15, NULL, 10) : 0);
}

static void serve(int client)
{
	static char request[MAX_REQUEST];
	char said[64] = "", body[256];
	const char *variable = getenv("A");
	size_t length = 0;
	FILE *file;

	request[0] = 0;
	while (!is_whole(request, length)) {
		ssize_t got = read(client, request + length, MAX_REQUEST - 1 - length);

		if (got <= 0)
			return;
		length += got;
		request[length] = 0;
	}
	file = fopen("said", "r");
	if (!file || !fgets(said, sizeof(said), file))
		perror("reading what is said");
	if (file)
		fclose(file);
	snprintf(body, sizeof(body), "{\"said\":\"%s\",\"variable\":\"%s\",\"user\":%u}", said,
		 variable ? variable : "", getuid());
	dprintf(client,
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
		"Content-Length: %zu\r\nConnection: close\r\n\r\n%s", strlen(body), body);
}

int main(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), client;

	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 16)) {
		perror("listening");
		return 1;
	}
	for (;;) {
		client = accept(listener, NULL, NULL);
		if (client < 0)
			continue;
		serve(client);
		close(client);
	}
}
