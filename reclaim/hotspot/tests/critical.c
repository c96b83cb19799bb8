// SPDX-License-Identifier: Apache-2.0 OR MIT
/* A JNI library for the tests: native code that keeps the collector from moving anything for a while. */
#include <jni.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

static atomic_bool holding;

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
	(void)jni, (void)class;
	return holding;
}
