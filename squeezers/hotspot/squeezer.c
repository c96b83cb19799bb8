// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The JVMTI agent: loads with the VM or into a running one, and starts the thread that serves requests. */
#include "listen.h"
#include "squeeze.h"
#include "runtime.h"
#include "serve.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static JavaVM *vm;
static jvmtiEnv *jvmti;
static struct runtime runtime;
static int listener;

static int complain(const char *what)
{
	fprintf(stderr, "squeezer: %s; the process goes on without the squeezer\n", what);
	return JNI_ERR;
}

static void *serve(void *unused)
{
	/* A daemon's end is nothing that the VM would wait for. */
	JavaVMAttachArgs arguments = {.version = JNI_VERSION_1_6, .name = (char *)"squeezer"};
	void *jni;

	(void)unused;
	if ((*vm)->AttachCurrentThreadAsDaemon(vm, &jni, &arguments)) {
		complain("the JVM takes no more threads");
		listen_remove();
		return NULL;
	}
	serve_clients(listener, jvmti, &runtime);
	(*vm)->DetachCurrentThread(vm);
	return NULL;
}

/* Once the VM runs. */
static int start(void)
{
	pthread_t thread;

	runtime_examine(vm, jvmti, &runtime);
	if (!runtime.refused[0] && !squeeze_prepare(&runtime))
		return complain("there is no memory for it");
	listener = listen_open();
	if (listener < 0)
		return JNI_ERR;
	if (pthread_create(&thread, NULL, serve, NULL)) {
		listen_remove();
		return complain("no thread can be started");
	}
	pthread_detach(thread);
	return JNI_OK;
}

static void JNICALL vm_starts(jvmtiEnv *unused_jvmti, JNIEnv *unused_jni, jthread unused_thread)
{
	(void)unused_jvmti;
	(void)unused_jni;
	(void)unused_thread;
	start();
}

static void JNICALL vm_ends(jvmtiEnv *unused_jvmti, JNIEnv *unused_jni)
{
	(void)unused_jvmti;
	(void)unused_jni;
	squeeze_ends();
	listen_remove();
}

static bool subscribe(void)
{
	const jvmtiCapabilities capabilities = {.can_generate_garbage_collection_events = 1};
	const jvmtiEventCallbacks callbacks = {
		.VMInit = vm_starts,
		.VMDeath = vm_ends,
		.GarbageCollectionStart = squeeze_pause_starts,
		.GarbageCollectionFinish = squeeze_pause_ends,
	};
	const jvmtiEvent events[] = {JVMTI_EVENT_VM_INIT, JVMTI_EVENT_VM_DEATH, JVMTI_EVENT_GARBAGE_COLLECTION_START,
				     JVMTI_EVENT_GARBAGE_COLLECTION_FINISH};

	if ((*jvmti)->AddCapabilities(jvmti, &capabilities) ||
	    (*jvmti)->SetEventCallbacks(jvmti, &callbacks, sizeof(callbacks)))
		return false;
	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++)
		if ((*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, events[i], NULL))
			return false;
	return true;
}

static int load(JavaVM *loading_vm, const char *options)
{
	static atomic_flag loaded = ATOMIC_FLAG_INIT;

	if (atomic_flag_test_and_set(&loaded)) {
		fputs("squeezer: the squeezer is in this process already\n", stderr);
		return JNI_OK;
	}
	if (options && *options)
		fputs("squeezer: the squeezer takes no options; SQUEEZER_SOCKET says where its socket is\n",
		      stderr);
	vm = loading_vm;
	if ((*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION_1_2) || !subscribe())
		return complain("the JVM has no JVMTI events of garbage collections");
	return JNI_OK;
}

/* A function must run without the squeezer rather than not at all: this never fails the start of the VM. */
JNIEXPORT jint JNICALL Agent_OnLoad(JavaVM *loading_vm, char *options, void *reserved)
{
	(void)reserved;
	load(loading_vm, options);
	return JNI_OK;
}

/* Whoever attaches it late reads this result. */
JNIEXPORT jint JNICALL Agent_OnAttach(JavaVM *loading_vm, char *options, void *reserved)
{
	bool first = !vm;

	(void)reserved;
	if (load(loading_vm, options))
		return JNI_ERR;
	return first ? start() : JNI_OK;
}
