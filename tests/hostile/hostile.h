/* What an attack is. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <stddef.h>

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

#endif
