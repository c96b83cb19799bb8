"""The squeezer of a process: a socket, and a thread that serves whoever connects to it."""
import atexit
import os
import sys
from time import monotonic, sleep

from . import address, refusal
from .conversation import Conversation
from .standard_error import say
from .thread import Thread

# How long a fork, or the end of the process, waits for a squeeze that is under way. It would be for
# ever where a finalizer waits for a lock that the forking thread holds.
_PAUSE_SECONDS = 5
# How long a child lives before it is given a socket: most of them only execute another program, or
# end without a chance to remove it.
_CHILD_SECONDS = 1
# How long to wait for descriptors when the process has no more of them.
_SHORTAGE_SECONDS = 0.2


class Squeezer:
    """The squeezer of this process, and of its children when it forks."""

    def __init__(self):
        self._refused = refusal.reason()
        self._conversation = None
        self._address = address.of_this_process(may_use_variable=True)
        self._address_after = 0
        try:
            self._thread = Thread(self)
            self._thread.start()
        except Exception:
            self._address.remove_file()
            self._address.descriptor.close()
            raise
        # Only the child is given another socket, so a fork that fails changes nothing.
        os.register_at_fork(
            before=self._before_fork,
            after_in_parent=self._after_fork,
            after_in_child=self._after_fork_in_child,
        )
        atexit.register(self._end)

    # What the thread does.

    def waits_for(self):
        if self._conversation is not None:
            return self._conversation.waits_for()
        if self._address is None:
            return None, max(self._address_after - monotonic(), 0)
        return self._address.descriptor.number, None

    def go_on(self):
        if self._address is None:
            if monotonic() >= self._address_after:
                self._address = address.of_this_process(may_use_variable=False)
            return
        if not self._address.descriptor.is_ours():
            # The program has closed it. The file goes first: nobody listens there any more.
            self._address.remove_file()
            self._address = address.of_this_process(may_use_variable=True)
        try:
            if self._conversation is None:
                self._conversation = Conversation(self._address.accept(), self._refused)
                self._conversation.begin()
            elif not self._conversation.go_on():
                self._hang_up()
        except BlockingIOError:
            pass
        except Exception:  # the client's fault, or memory is short: the next one may have more luck
            if self._conversation is None:
                sleep(_SHORTAGE_SECONDS)
            self._hang_up()

    def _hang_up(self):
        if self._conversation is not None:
            self._conversation.close()
            self._conversation = None

    # What the process does.

    def _before_fork(self):
        if self._thread is not None:
            self._thread.pause(_PAUSE_SECONDS)

    def _after_fork(self):
        if self._thread is not None:
            try:
                self._thread.resume()
            except RuntimeError:  # the interpreter is about to end
                pass

    def _after_fork_in_child(self):
        """The parent keeps its socket; this process makes one of its own."""
        if self._thread is None:
            return
        self._hang_up()
        if self._address is not None:
            self._address.descriptor.close()
            self._address = None
        self._address_after = monotonic() + _CHILD_SECONDS
        self._thread.close()
        self._thread = None
        try:
            self._thread = Thread(self)
            self._thread.start()
            self._end_with_worker()
        except Exception as error:
            say(error)

    def _end_with_worker(self):
        """Processes of multiprocessing end without atexit; they have a way of their own."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(
                self, lambda squeezer: util.Finalize(None, squeezer._end, exitpriority=0)
            )

    def _end(self):
        if self._thread is not None:
            if self._thread.pause(_PAUSE_SECONDS):
                self._hang_up()
            self._thread = None
            if self._address is not None:
                self._address.remove_file()
