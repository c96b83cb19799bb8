// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "squeeze.h"
#include "release.h"
#include "resident.h"
#include "settings.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static const struct runtime *runtime;
static struct space *spaces;

/*
 * What the squeezer's thread and the events share. The lock is held for moments only, and never by a thread
 * that waits for the VM: the VM's thread takes it while everybody else stands still.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	/* Pauses collect thoroughly, and give memory back when they end. */
	bool armed, drop_soft;
	/* The VM is about to end: it sends no more events. */
	bool ending;
	uint64_t started_ns, pause_ns;
	unsigned int pauses;
	/* Of the last pause, with what all of them gave back. */
	struct release release;
} shared;

static uint64_t now_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

bool squeeze_prepare(const struct runtime *examined)
{
	runtime = examined;
	settings_prepare();
	spaces = calloc(runtime->collector->most_spaces(&runtime->heap), sizeof(*spaces));
	return spaces;
}

void JNICALL squeeze_pause_starts(jvmtiEnv *jvmti)
{
	(void)jvmti;
	pthread_mutex_lock(&lock);
	if (shared.armed) {
		shared.started_ns = now_ns(CLOCK_MONOTONIC);
		settings_thorough(shared.drop_soft);
	}
	pthread_mutex_unlock(&lock);
}

void squeeze_ends(void)
{
	pthread_mutex_lock(&lock);
	shared.ending = true;
	pthread_mutex_unlock(&lock);
}

static void release_all(void)
{
	uint64_t advised_bytes = shared.release.advised_bytes;

	release_free_memory(runtime->collector, &runtime->heap, spaces, &shared.release);
	shared.release.advised_bytes += advised_bytes;
}

/*
 * The VM is stopped, the collection is done: whatever lies above a top is in nobody's hands. See the
 * README for why that is so, and for why it is so in every pause, not only in the one that was asked for.
 */
void JNICALL squeeze_pause_ends(jvmtiEnv *jvmti)
{
	(void)jvmti;
	pthread_mutex_lock(&lock);
	settings_restore();
	if (shared.armed) {
		/* The start was missed if the request came in the middle of a pause. */
		uint64_t started_ns = shared.started_ns ? shared.started_ns : now_ns(CLOCK_MONOTONIC);

#ifndef SQUEEZY_WITHOUT_PAUSE
		release_all();
#endif
		shared.pause_ns += now_ns(CLOCK_MONOTONIC) - started_ns;
		shared.started_ns = 0;
		shared.pauses++;
	}
	pthread_mutex_unlock(&lock);
}

static void collect(jvmtiEnv *jvmti, bool drop_soft, struct answer *answer)
{
	unsigned int collections = *runtime->collections;
	jvmtiError error;

	pthread_mutex_lock(&lock);
	shared.armed = true;
	shared.drop_soft = drop_soft;
	shared.started_ns = 0;
	shared.pause_ns = 0;
	shared.pauses = 0;
	shared.release = (struct release){0};
	pthread_mutex_unlock(&lock);

	error = (*jvmti)->ForceGarbageCollection(jvmti);

	pthread_mutex_lock(&lock);
	shared.armed = false;
#ifdef SQUEEZY_WITHOUT_PAUSE
	/* Often enough for the VM's threads to be at work again. */
	for (int i = 0; i < 100; i++)
		release_all();
#endif
	answer->live_bytes = shared.release.live_bytes;
	answer->advised_bytes = shared.release.advised_bytes;
	answer->pause_ns = shared.pause_ns;
	answer->error = shared.release.error;
	if (shared.ending)
		answer->error = "the JVM is about to end";
	else if (error)
		answer->error = "the JVM does not collect now: ask again";
	else if (!shared.pauses || collections == *runtime->collections)
		/* GCLocker: only a thread inside GetPrimitiveArrayCritical and the like can do that. */
		answer->error = "nothing was collected, because native code holds on to the heap: ask again";
	pthread_mutex_unlock(&lock);
}

void squeeze_run(jvmtiEnv *jvmti, const struct request *request, struct answer *answer)
{
	uint64_t cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);

	*answer = (struct answer){.before_bytes = resident_bytes(&runtime->heap)};
	if (request->heap)
		collect(jvmti, request->all, answer);
#ifdef __GLIBC__
	if (request->trim)
		malloc_trim(0);
#endif
	answer->after_bytes = resident_bytes(&runtime->heap);
	answer->cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
}
