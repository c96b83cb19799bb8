"""A thread that the program need not know of.

It takes no signals, is not among those of the module threading, and can be made to go away for as long
as the process forks. A child then finds no lock held by it, no module half imported and no collection
half done, none of which would ever end in the child; and Python 3.12 and later do not warn of forking
with threads. What it uses is taken before a program can put something else there, as gevent does.
"""
import os
from _signal import SIG_BLOCK, SIG_SETMASK, pthread_sigmask, valid_signals
from _thread import RLock, allocate_lock, get_native_id, start_new_thread
from select import POLLIN, poll
from time import monotonic, sleep

from .descriptor import Descriptor
from .standard_error import say

# How often to look whether a thread that is about to end has done so.
_INTERVAL_SECONDS = 0.0001
# How long to leave a program alone that has closed our descriptors.
_DAEMON_SECONDS = 1


class Thread:
    """Waits for what task.waits_for() names, and calls task.go_on() then.

    waits_for() is a descriptor's number or None, and how many seconds to wait for it at most, or None.
    """

    def __init__(self, task):
        self._task = task
        # Held for a few statements at a time; guards the two below it. A signal's handler may come in
        # between on the same thread, and fork.
        self._gate = RLock()
        self._running = False
        self._pauses = 0
        # Held by the thread.
        self._alive = allocate_lock()
        self._number = 0
        self._open()

    def _open(self):
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self._bell = Descriptor(read)
        finally:
            self._button = Descriptor(write)

    def close(self):
        """Closes its descriptors; it must not be running."""
        self._bell.close()
        self._button.close()

    def start(self):
        """Starts it; RuntimeError if there are too many threads, or the interpreter is ending."""
        self._running = True
        self._alive.acquire()
        # Signals are for the program's threads. A new thread has the mask of the one that starts it.
        before = pthread_sigmask(SIG_BLOCK, valid_signals())
        try:
            start_new_thread(self._run, ())
        except RuntimeError:
            self._running = False
            self._alive.release()
            raise
        finally:
            pthread_sigmask(SIG_SETMASK, before)

    def pause(self, seconds):
        """Makes it go away until resume() has been called as often as this. False if it is there yet.

        Waits for what it is just doing, for at most so many seconds.
        """
        with self._gate:
            self._pauses += 1
            if not self._running:
                return True
        self._ring()
        if not self._alive.acquire(timeout=seconds):
            return False
        self._alive.release()
        # The system's thread lives a little longer than Python's.
        limit = monotonic() + seconds
        while os.path.exists(f"/proc/self/task/{self._number}") and monotonic() < limit:
            sleep(_INTERVAL_SECONDS)
        return True

    def resume(self):
        """Takes one pause() back."""
        with self._gate:
            self._pauses -= 1
            if not self._pauses and not self._running:
                self.start()

    def _ring(self):
        if self._button.is_ours():
            try:
                os.write(self._button.number, b"!")
            except BlockingIOError:  # it has been rung often enough
                pass

    def _run(self):
        self._number = get_native_id()
        try:
            while self._wait():
                self._task.go_on()
        except Exception as error:
            say(error)
            with self._gate:
                self._pauses += 1  # for good
                self._running = False
        finally:
            self._alive.release()

    def _wait(self):
        """Waits for something to do; False when it has to go away."""
        number, seconds = self._task.waits_for()
        waiting = poll()
        waiting.register(self._bell.number, POLLIN)
        if number is not None:
            waiting.register(number, POLLIN)
        waiting.poll(None if seconds is None else seconds * 1000)
        if not (self._bell.is_ours() and self._button.is_ours()):
            # A daemon closes everything first, and then opens what it expects to be the first.
            sleep(_DAEMON_SECONDS)
            self.close()
            self._open()
        try:
            os.read(self._bell.number, 4096)
        except BlockingIOError:
            pass
        with self._gate:
            self._running = not self._pauses
            return self._running
