/* The interface of attacks. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <netinet/in.h>
#include <stddef.h>

#define MIB (1 << 20)

/*
 * An attack takes as much as it can and returns when it can take no more, with the reason in errno.
 * It runs in its own process, which keeps what it has until the attack is over. To add one,
 * write ATTACK(name) { ... } in a file of this directory.
 */
struct attack {
	const char *name;
	void (*run)(void);
	struct attack *next;
};

extern struct attack *attacks;

#define ATTACK(id)							\
	static void id(void);						\
	static struct attack id##_attack = { .name = #id, .run = id };	\
	static __attribute__((constructor)) void id##_register(void)	\
	{								\
		id##_attack.next = attacks;				\
		attacks = &id##_attack;					\
	}								\
	static void id(void)

/* For attacks: repeats them in other processes, for what is limited per process. */
void in_many_processes(void (*run)(void));

/* The same in one thread after another, until no more can be created. */
void in_many_threads(void *(*run)(void *));

/* For threads, and for attacks that have ended. */
void *wait_for_ever(void *unused);

/* A socket that listens on the loopback interface, or -1; its address is stored in `own`. */
int tcp_listener(struct sockaddr_in *own, int backlog);

/* A connected socket, or -1. */
int tcp_connection(const struct sockaddr_in *to);

/* Data to send or write, and a buffer for reads. */
extern char chunk[MIB];

#endif
