// SPDX-License-Identifier: Apache-2.0 OR MIT
// What JavaScript cannot ask for: V8's full collections, malloc's free pages, and a socket file that goes with the
// process. Node-API and three functions of V8 that have kept their names: one binary for all versions of Node that
// are tested. With another V8 it does not load (-z now), and the inspector takes its place.
#include <malloc.h>
#include <node_api.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <v8.h>

// How many collections V8 12 (Node 22) makes without running a function until it throws its bytecode away; the older
// ones make fewer.
constexpr int kCollectionsUntilOld = 6;

// Of V8's heap, in all of these versions.
constexpr size_t kHeapPageBytes = 256 << 10;

constexpr size_t kMostPathBytes = 108;

static struct {
	char path[kMostPathBytes];
	struct stat made;
	pid_t owner;
} listener;

// Collects garbage, several times where V8 finds more after the first. These collections do not age bytecode.
static napi_value Collect(napi_env env, napi_callback_info info)
{
	v8::Isolate *isolate = v8::Isolate::GetCurrent();
	napi_value argument;
	size_t count = 1;
	bool flush = false;

	napi_get_cb_info(env, info, &count, &argument, nullptr, nullptr);
	napi_get_value_bool(env, argument, &flush);
	// These do.
	for (int collection = 0; flush && collection < kCollectionsUntilOld; collection++) {
		isolate->MemoryPressureNotification(v8::MemoryPressureLevel::kCritical);
		isolate->MemoryPressureNotification(v8::MemoryPressureLevel::kNone);
	}
	// Last, as it also finishes the marking that a collection under pressure may leave behind for later.
	isolate->LowMemoryNotification();
	return nullptr;
}

static napi_value Trim(napi_env, napi_callback_info)
{
#ifdef __GLIBC__
	malloc_trim(0);
#endif
	return nullptr;
}

// How many bytes are not resident of the page of V8's heap that new objects come from. V8 counts it as a whole, and
// after a collection it has a few of them in use.
static napi_value Untouched(napi_env env, napi_callback_info)
{
	const size_t page_bytes = sysconf(_SC_PAGESIZE);
	unsigned char resident[kHeapPageBytes / 4096];
	napi_value object, value;
	size_t untouched = 0;

	napi_create_object(env, &object);
	// A handle points to the object's address. Nothing is read there: it is the kernel that is asked about it.
	uintptr_t address = *reinterpret_cast<uintptr_t *>(object) & -kHeapPageBytes;
	if (page_bytes >= 4096 && mincore(reinterpret_cast<void *>(address), kHeapPageBytes, resident) == 0)
		for (size_t page = 0; page < kHeapPageBytes / page_bytes; page++)
			untouched += resident[page] & 1 ? 0 : page_bytes;
	napi_create_uint32(env, untouched, &value);
	return value;
}

// The socket at the first path, which nobody else knows, goes with the process from the second one, however it calls
// exit(). At the second there may be another by now.
static napi_value RemoveAtExit(napi_env env, napi_callback_info info)
{
	char made[kMostPathBytes];
	napi_value arguments[2];
	size_t count = 2;

	napi_get_cb_info(env, info, &count, arguments, nullptr, nullptr);
	if (napi_get_value_string_utf8(env, arguments[0], made, sizeof(made), nullptr) == napi_ok &&
	    napi_get_value_string_utf8(env, arguments[1], listener.path, sizeof(listener.path), nullptr) == napi_ok &&
	    lstat(made, &listener.made) == 0)
		listener.owner = getpid();
	return nullptr;
}

[[gnu::destructor]] static void RemoveListener()
{
	struct stat there;

	// A child of fork() has the same, and may exit too. A number of an inode comes again, with another time; that of
	// the last change is no use, for it goes with the number of links.
	if (listener.owner == getpid() && lstat(listener.path, &there) == 0 && there.st_dev == listener.made.st_dev &&
	    there.st_ino == listener.made.st_ino &&
	    memcmp(&there.st_mtim, &listener.made.st_mtim, sizeof(there.st_mtim)) == 0)
		unlink(listener.path);
}

static void Export(napi_env env, napi_value exports, const char *name, napi_callback function)
{
	napi_value value;

	napi_create_function(env, name, NAPI_AUTO_LENGTH, function, nullptr, &value);
	napi_set_named_property(env, exports, name, value);
}

NAPI_MODULE_INIT()
{
	Export(env, exports, "collect", Collect);
	Export(env, exports, "trim", Trim);
	Export(env, exports, "removeAtExit", RemoveAtExit);
	Export(env, exports, "untouched", Untouched);
	return exports;
}
