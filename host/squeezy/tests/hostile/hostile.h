/* What an attack is. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <netinet/in.h>
#include <stddef.h>

#define MIB (1 << 20)

/*
 * One attack: takes as much as it can and returns when it can take no more, with errno saying why.
 * It runs in a process of its own, which keeps what it has until the attack is over. To add one,
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

/* For attacks: the same again in another process, for what is limited by process. */
void in_many_processes(void (*run)(void));

/* The same in one thread after the other, until there can be no more. */
void in_many_threads(void *(*run)(void *));

/* For threads and what has come to its end. */
void *wait_for_ever(void *unused);

/* A socket that listens on the loopback interface, at the address that is left in `own`, or -1. */
int tcp_listener(struct sockaddr_in *own, int backlog);

/* A socket that is connected, or -1. */
int tcp_connection(const struct sockaddr_in *to);

/* What is sent or written, and room for what is read. */
extern char chunk[MIB];

#endif
