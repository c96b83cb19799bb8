"""Where the time of a reclaim goes that neither the guest's kernel nor the discarding takes.

usage: bench/src/experiments/reclaim/timeline.py [ROUNDS]     (50; after `make kernel image`, two seconds a round)

Plugs and reclaims a partition of 512 MiB that nobody touches, in a bare VM, and prints what passes
from one step to the next: by trace events of QEMU, tracepoints of the guest, and this program's own
clock, which is the one of QEMU's events. Between host and guest only differences are compared.
"""

import json
import pathlib
import queue
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BUILD = pathlib.Path(__file__).resolve().parents[4] / "build"
SIZE_BYTES = 512 << 20
BASE_BYTES = 256 << 20
# Longer than QEMU delays a second report of a device's size.
REST_SECONDS = 1.15
# Limit for the boot, for each report, and for the guest's trace.
LIMIT_SECONDS = 120

TRACED = ["handle_qmp_command", "monitor_qmp_cmd_in_band", "apic_deliver_irq", "virtio_queue_notify",
          "virtio_mem_unplug_request", "monitor_protocol_event_emit"]

INIT = """#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t tracefs trace /sys/kernel/tracing
cd /sys/kernel/tracing
echo 8192 > buffer_size_kb
echo mono > trace_clock
for event in irq/irq_handler_entry workqueue/workqueue_queue_work workqueue/workqueue_execute_start squeezy; do
    echo 1 > events/$event/enable
done
echo READY
read line
echo 0 > tracing_on
cat trace
echo END
read line
"""


def archive(content):
    """A cpio archive of the kernel's form with an executable /init, which goes after another one."""
    def entry(name, mode, data):
        fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name + b"\0"
        return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
    return entry(b"init", 0o100755, content) + entry(b"TRAILER!!!", 0, b"")


class Machine:
    """A VM with one virtio-mem device, its console and its monitor."""

    def __init__(self, initramfs):
        ours, theirs = socket.socketpair()
        command = [
            "qemu-system-x86_64", "-machine", "q35,vmport=off,smbus=off,sata=off,usb=off,i8042=off",
            "-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm", "-smp", "2",
            "-m", f"size={BASE_BYTES}B,maxmem={BASE_BYTES + SIZE_BYTES}B,slots=0",
            "-object", f"memory-backend-ram,id=memory,size={SIZE_BYTES}B,prealloc=off,reserve=off",
            "-device", "virtio-mem-pci,id=vmem0,memdev=memory,requested-size=0",
            "-chardev", f"socket,id=monitor,fd={theirs.fileno()}", "-mon", "chardev=monitor,mode=control",
            "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console", "-display", "none",
            "-append", f"console=ttyS0 quiet squeezy.partitions=1 squeezy.partition_size={SIZE_BYTES >> 10}K",
            "-kernel", BUILD / "kernel/release/bzImage", "-initrd", initramfs,
            "-msg", "timestamp=on", "-nodefaults", "-no-user-config", "-no-reboot"]
        for event in TRACED:
            command += ["-trace", event]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], text=True, errors="replace",
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        theirs.close()
        self.trace, self.console, self.said = [], queue.Queue(), queue.Queue()
        self.monitor = ours.makefile("rw")
        for lines, take in [(self.process.stderr, self.trace.append), (self.process.stdout, self.console.put)]:
            threading.Thread(target=lambda lines=lines, take=take: [take(line) for line in lines], daemon=True).start()
        threading.Thread(target=self.listen, daemon=True).start()
        self.command("qmp_capabilities")

    def listen(self):
        for line in self.monitor:
            self.said.put((time.time(), json.loads(line)))

    def command(self, name, **arguments):
        self.monitor.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
        self.monitor.flush()

    def until(self, word):
        """The lines of the console until one has this word."""
        lines = []
        while word not in (line := self.console.get(timeout=LIMIT_SECONDS)):
            lines.append(line)
        return lines

    def resize(self, size_bytes):
        """When the size was asked for, and when its report came."""
        asked = time.time()
        self.command("qom-set", path="vmem0", property="requested-size", value=size_bytes)
        while True:
            came, message = self.said.get(timeout=LIMIT_SECONDS)
            if "error" in message:
                sys.exit(f"QEMU: {message['error']['desc']}")
            if message.get("event") == "MEMORY_DEVICE_SIZE_CHANGE":
                time.sleep(REST_SECONDS)
                return asked, came


def host_steps(trace, reclaims):
    """Of each reclaim, how long each step took on the host, in milliseconds."""
    found = (re.match(r"\d+@(\d+\.\d+):(\w+) ?(.*)", line) for line in list(trace))
    events = [(float(match[1]), match[2], match[3]) for match in found if match]

    def first(name, after, content=""):
        return next(at for at, event, said in events if event == name and at >= after and content in said)

    for asked, came in reclaims:
        # QEMU's clock and ours agree to a microsecond.
        read = first("handle_qmp_command", asked - 1e-4, "qom-set")
        taken = first("monitor_qmp_cmd_in_band", read)
        interrupt = first("apic_deliver_irq", taken)
        request = first("virtio_mem_unplug_request", interrupt)
        notified = max(at for at, event, _ in events if event == "virtio_queue_notify" and at <= request)
        reported = first("monitor_protocol_event_emit", request)
        moments = [asked, read, taken, interrupt, notified, request, reported, came]
        yield [1e3 * (to - since) for since, to in zip(moments, moments[1:])] + [1e3 * (came - asked)]


def guest_steps(lines):
    """Of each reclaim, how long each step took in the guest, in milliseconds."""
    found = (re.match(r".*\s(\d+\.\d+): (\w+): (.*)", line) for line in lines)
    events = [(float(match[1]), match[2], match[3]) for match in found if match]
    for index, (_, event, said) in enumerate(events):
        if event != "squeezy_resize" or "unplug" not in said:
            continue

        def last(name, content="", before=index):
            return next(number for number in range(before - 1, -1, -1)
                        if events[number][1] == name and content in events[number][2])

        queued = last("workqueue_queue_work", "virtio_mem_run_wq")
        moments = [events[number][0] for number in (
            last("irq_handler_entry", before=queued), queued,
            last("workqueue_execute_start", "virtio_mem_run_wq"), last("squeezy_state", "free -> unplugging"))]
        kernel_ns = int(re.search(r"guest_ns=(\d+)", said)[1])
        yield [1e3 * (to - since) for since, to in zip(moments, moments[1:])] + [kernel_ns / 1e6]


def show(names, rows):
    for name, values in zip(names, zip(*rows)):
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        print(f"{name:58} {middle:6.2f}  ({low:.2f} to {high:.2f})")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    with tempfile.NamedTemporaryFile(suffix=".cpio") as initramfs:
        initramfs.write((BUILD / "initramfs.cpio").read_bytes() + archive(INIT.encode()))
        initramfs.flush()
        machine = Machine(initramfs.name)
        try:
            machine.until("READY")
            reclaims = []
            for number in range(rounds):
                print(f"\r{number + 1} of {rounds} ", end="", file=sys.stderr, flush=True)
                machine.resize(SIZE_BYTES)
                reclaims.append(machine.resize(0))
            print(file=sys.stderr)
            machine.process.stdin.write("\n")
            machine.process.stdin.flush()
            guest = machine.until("END")
        finally:
            machine.process.kill()
            machine.process.wait()
    print(f"host, {rounds} reclaims: median and quartiles in ms")
    show(["the command is written -> QEMU's monitor thread has read it", "-> its main thread takes it",
          "-> the device's interrupt is raised", "-> the guest has notified the device",
          "-> the request is at the device", "-> the device reports its size", "-> the host has the report",
          "all of it"], host_steps(machine.trace, reclaims))
    print("guest")
    show(["interrupt handler -> work is queued", "-> kworker runs", "-> a partition is claimed",
          "the work for the partition itself"], guest_steps(guest))


if __name__ == "__main__":
    main()
