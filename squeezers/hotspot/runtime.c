// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "runtime.h"
#include "flags.h"
#include "structs.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct collector *const known[] = {&collector_serial, &collector_parallel, &collector_g1};

static const struct {
	const char *name, *flag;
} unknown[] = {
	{"z", "UseZGC"},
	{"shenandoah", "UseShenandoahGC"},
	{"epsilon", "UseEpsilonGC"},
	{"cms", "UseConcMarkSweepGC"},
};

#define KNOWN_COLLECTORS "use -XX:+UseSerialGC, -XX:+UseParallelGC or -XX:+UseG1GC"

__attribute__((format(printf, 2, 3))) static void refuse(struct runtime *runtime, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(runtime->refused, sizeof(runtime->refused), format, arguments);
	va_end(arguments);
}

static void read_property(jvmtiEnv *jvmti, const char *name, char *value, size_t size)
{
	char *text = NULL;

	value[0] = 0;
	if ((*jvmti)->GetSystemProperty(jvmti, name, &text) || !text)
		return;
	snprintf(value, size, "%s", text);
	(*jvmti)->Deallocate(jvmti, (unsigned char *)text);
}

/* The library that this JVM is in: a process may have loaded it without making its symbols global. */
static void *open_library(JavaVM *vm)
{
	void *library = NULL;
	Dl_info info;

	if (dladdr((void *)(uintptr_t)(*vm)->GetEnv, &info) && info.dli_fname)
		library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	return library ? library : dlopen(NULL, RTLD_LAZY);
}

/* HotSpot's own version has to agree: that of JDK 8 was 25. */
static bool is_known_version(const char *specification)
{
	const int *major = structs_static("Abstract_VM_Version", "_vm_major_version");

	return major && atoi(specification) == *major &&
	       (*major == 11 || *major == 17 || *major == 21 || *major == 25);
}

static void find_collector(struct runtime *runtime)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (flag_is_on(known[i]->flag)) {
			runtime->collector = known[i];
			runtime->collector_name = known[i]->name;
			return;
		}
	for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++)
		if (flag_is_on(unknown[i].flag)) {
			runtime->collector_name = unknown[i].name;
			refuse(runtime, "the collector of -XX:+%s is not known to this squeezer: " KNOWN_COLLECTORS,
			       unknown[i].flag);
			return;
		}
	refuse(runtime, "the collector of this JVM is not known to this squeezer: " KNOWN_COLLECTORS);
}

/* What a heap is made of decides whether MADV_DONTNEED gives its pages back and leaves zeroes. */
static void check_memory(struct runtime *runtime)
{
	if (flag_has_text("AllocateHeapAt"))
		refuse(runtime, "the heap is in a file: leave out -XX:AllocateHeapAt");
	else if (flag_is_on("UseLargePages") && !flag_is_on("UseTransparentHugePages"))
		refuse(runtime,
		       "the heap is in hugetlb pages: use -XX:+UseTransparentHugePages or leave out -XX:+UseLargePages");
	else if (flag_is_on("UseNUMA") && runtime->collector == &collector_parallel)
		refuse(runtime, "Parallel with -XX:+UseNUMA is not known to this squeezer: leave out one of them");
}

static bool find_heap(struct runtime *runtime)
{
	size_t reserved, start, words, collections;
	char **object = structs_static("Universe", "_collectedHeap");

	if (!object || !*object || !structs_offset("CollectedHeap", "_reserved", &reserved) ||
	    !structs_offset("CollectedHeap", "_total_collections", &collections) ||
	    !structs_offset("MemRegion", "_start", &start) || !structs_offset("MemRegion", "_word_size", &words))
		return false;
	runtime->heap.object = *object;
	runtime->heap.start = STRUCTS_AT(char *, *object, reserved + start);
	runtime->heap.end = runtime->heap.start + STRUCTS_AT(size_t, *object, reserved + words) * sizeof(void *);
	runtime->collections = &STRUCTS_AT(unsigned int, *object, collections);
	return runtime->collector->prepare();
}

void runtime_examine(JavaVM *vm, jvmtiEnv *jvmti, struct runtime *runtime)
{
	char debug[32], specification[32];

	memset(runtime, 0, sizeof(*runtime));
	read_property(jvmti, "java.vm.version", runtime->version, sizeof(runtime->version));
	read_property(jvmti, "java.vm.specification.version", specification, sizeof(specification));
	read_property(jvmti, "jdk.debug", debug, sizeof(debug));
	if (!structs_open(open_library(vm))) {
		refuse(runtime, "this JVM is not HotSpot: use an OpenJDK of version 11, 17, 21 or 25");
		return;
	}
	if (!flags_open() || !is_known_version(specification)) {
		refuse(runtime, "JDK %s is not known to this squeezer: use 11, 17, 21 or 25", specification);
		return;
	}
	find_collector(runtime);
	if (runtime->refused[0])
		return;
	if (strcmp(debug, "release"))
		/* It checks that free memory holds the pattern that it was filled with. */
		refuse(runtime, "this is a debug build (%s) of the JVM: use a release build", debug);
	else
		check_memory(runtime);
	if (!runtime->refused[0] && !find_heap(runtime))
		refuse(runtime, "this JVM does not describe its %s: use a build of OpenJDK",
		       structs_missing() ? structs_missing() : "heap");
}
