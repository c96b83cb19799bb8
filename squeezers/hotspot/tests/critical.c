// SPDX-License-Identifier: Apache-2.0 OR MIT
/* A JNI library for the tests: what native code can do to a heap. */
#include <jni.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>

static atomic_bool holding;

/* Keeps the collector from moving anything for a while. */
JNIEXPORT void JNICALL Java_Workload_hold(JNIEnv *jni, jclass class, jbyteArray array, jint milliseconds)
{
	const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
	void *bytes = (*jni)->GetPrimitiveArrayCritical(jni, array, NULL);

	(void)class;
	holding = true;
	nanosleep(&time, NULL);
	holding = false;
	(*jni)->ReleasePrimitiveArrayCritical(jni, array, bytes, 0);
}

JNIEXPORT jboolean JNICALL Java_Workload_isHolding(JNIEnv *jni, jclass class)
{
	(void)jni;
	(void)class;
	return holding;
}

/* Locks a page of the heap in memory. */
JNIEXPORT jboolean JNICALL Java_Workload_lock(JNIEnv *jni, jclass class, jbyteArray array)
{
	void *bytes = (*jni)->GetPrimitiveArrayCritical(jni, array, NULL);
	int failed = mlock((char *)bytes + 4096, 1);

	(void)class;
	(*jni)->ReleasePrimitiveArrayCritical(jni, array, bytes, 0);
	return !failed;
}
