"""A program that checks every byte it has stored, in threads and in asyncio tasks.

It runs until there is a line on standard input, and until each of them has checked something after it. Then it
prints which values were not right. Values are made from a number, so that what a value has to be is known without
storing it.
"""
import asyncio
import ctypes
import gc
import json
import os
import random
import sys
import threading
import time

THREADS = 3
TASKS = 50
SLOTS = 4000


class Node:
    """An object with a dictionary, and in a cycle."""

    def __init__(self, payload):
        self.payload = payload
        self.self = self

    def __eq__(self, other):
        return isinstance(other, Node) and self.payload == other.payload and self.self is self


def make(seed):
    """A value of some kind and size: most of them blocks of pymalloc, some larger."""
    size = 1 + seed * 2654435761 % 61
    kind = seed % 8
    if kind == 0:
        return bytes([seed % 256]) * size * 9
    if kind == 1:
        return str(seed) * size
    if kind == 2:
        return [seed + number for number in range(size)]
    if kind == 3:
        return tuple(float(seed + number) for number in range(size))
    if kind == 4:
        return {str(seed + number): number for number in range(size)}
    if kind == 5:
        return Node([seed] * size)
    if kind == 6:
        return {seed + number for number in range(size)}
    return bytearray(str(seed).encode() * size * 40)


class Checker:
    """Counts what it was given, and remembers what was not right."""

    def __init__(self):
        self.checked = 0
        self.wrong = []

    def check(self, seed, value):
        if value != make(seed):
            self.wrong.append(seed)
        self.checked += 1


def churn(checker, seed, ended):
    """Fills slots, empties most of them at once, and looks whether the others are as they were."""
    generator = random.Random(seed)
    slots = {}
    while not ended.is_set():
        for _ in range(SLOTS):
            slot, number = generator.randrange(SLOTS), generator.randrange(1 << 40)
            if slot in slots:
                checker.check(*slots[slot])
            slots[slot] = number, make(number)
        for slot in generator.sample(sorted(slots), len(slots) * 9 // 10):
            checker.check(*slots.pop(slot))


async def exchange(checker, seed, ended):
    """Two tasks that hand each other values."""
    queue = asyncio.Queue(4)

    async def produce():
        number = seed
        while not ended.is_set():
            number += 1
            await queue.put((number, make(number)))
            await asyncio.sleep(0)
        await queue.put(None)

    producer = asyncio.ensure_future(produce())
    while (item := await queue.get()) is not None:
        checker.check(*item)
    await producer


async def exchange_all(checkers, ended):
    await asyncio.gather(*(exchange(checker, seed << 32, ended) for seed, checker in enumerate(checkers)))


def corrupt():
    """Takes away the pages of a pool that is in use, as a squeezer would that has it wrong."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for value in [object for object in gc.get_objects() if isinstance(object, Node)][:200]:
        pool = id(value) & -16384
        madvise(pool + 4096, 16384 - 4096, 4)


def wait_for_all(checkers):
    """Waits until each has checked something more."""
    before = [checker.checked for checker in checkers]
    while any(checker.checked == checked for checker, checked in zip(checkers, before)):
        time.sleep(0.01)


def main():
    ended = threading.Event()
    checkers = [Checker() for _ in range(THREADS + TASKS)]
    threads = [threading.Thread(target=churn, args=(checker, seed, ended))
               for seed, checker in enumerate(checkers[:THREADS])]
    threads.append(threading.Thread(target=lambda: asyncio.run(exchange_all(checkers[THREADS:], ended))))
    for thread in threads:
        thread.start()
    # There are values of all kinds by then, also on a machine that is slow to begin with any.
    wait_for_all(checkers)
    print("here", flush=True)
    if sys.stdin.readline() == "corrupt\n":
        corrupt()
        sys.stdin.readline()
    else:
        wait_for_all(checkers)
    ended.set()
    for thread in threads:
        thread.join()
    print(json.dumps([seed for checker in checkers for seed in checker.wrong]), flush=True)
    # Values may be damaged in the test that damages them; nobody needs them any more.
    os._exit(0)


if __name__ == "__main__":
    main()
