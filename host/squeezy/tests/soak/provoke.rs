//! Provokes faults under load, and waits for their end.

use crate::{
    Soak,
    calls::What,
    clients::{send, vanish},
    common::{skip, until},
    faults::Fault,
    ledger::Kind,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Clients that call at once: more than there are instances and places in the queue.
const CROWD: u64 = 40;

/// How long something stalls that must not be given up.
const STALL: Duration = Duration::from_secs(3);

/// How long a call may wait for a VM that replaces another one, with no other load. Who is forgotten
/// waits for the next call, which does not come; on a machine whose processors everybody wants, a
/// VM under emulation has taken 10 s to boot, and an instance 20 s to answer.
const TURN: Duration = Duration::from_secs(120);

impl Soak {
    /// Provokes a fault under load, and returns when it is over.
    pub fn provoke(&mut self, fault: Fault) {
        let position = self.host.log_length();
        let window = self.world.ledger.open(fault);
        let under_way = if fault.meets_work() { self.begin(What::Works, 2) } else { Vec::new() };
        match fault {
            Fault::InstanceEnds => {
                self.make(What::Ends);
                self.make(What::Crashes);
            }
            Fault::InstanceExceedsMemory => self.make(What::Hoards),
            Fault::InstanceHangs => self.make(What::Hangs),
            Fault::BaseMemoryIsShort => {
                self.make_at_once(&[What::Floods, What::Exhausts, What::Exhausts]);
            }
            // More often than there are partitions.
            Fault::PartitionsAreShort => self.make_at_once(&[What::Clings; 4]),
            Fault::HostMemoryIsShort => self.contend(),
            Fault::VmIsKilled => self.kill_vm(),
            Fault::VmHangs => {
                let vm = self.host.vm();
                signal(vm, Signal::STOP);
                self.vm_has_ended(vm, position);
            }
            Fault::VmStalls => stall(self.host.vm()),
            Fault::DaemonStalls => stall(self.host.daemon().child.id()),
            Fault::GuestHangs => self.hang_guest(position),
            Fault::DaemonIsKilled => {
                self.host.kill();
                self.host.start();
            }
            Fault::DaemonIsTold => self.restart(),
            Fault::ActionChanges => self.change_action(),
            Fault::DiskIsFull => self.fill_disk(),
            Fault::ClientsVanish => vanish(&self.world),
            Fault::TooManyCall => self.crowd(),
        }
        for call in under_way {
            call.join().unwrap();
        }
        self.world.ledger.close(window);
    }

    fn make(&mut self, what: What) {
        self.world.make(what, &mut self.random);
    }

    /// Has as many clients make these calls at once.
    fn make_at_once(&self, calls: &[What]) {
        let begun: Vec<_> = calls.iter().flat_map(|&what| self.call(what, 1)).collect();
        for call in begun {
            call.join().unwrap();
        }
    }

    /// Calls the other function with pauses, in which its VM gives way if the first function needs
    /// the memory and has to be booted again. Then nobody calls it any more, and its VM ends.
    fn contend(&mut self) {
        self.make_at_once(&[What::Contends]);
        // No other load: otherwise a forgotten call would be served when the next one arrives.
        let world = self.world.clone();
        let silence = world.silence();
        for what in [What::Page, What::Contends, What::Page, What::Contends] {
            let begin = Instant::now();
            self.make(what);
            let waited = begin.elapsed();
            assert!(waited < TURN, "{what}, with nobody else calling: {} s", waited.as_secs());
            // When the next call arrives, the instance is busy, idle or just gone.
            std::thread::sleep(self.random.time(Duration::from_secs(5)));
        }
        drop(silence);
        until("the end of the other VM", || (!self.host.has_contender()).then_some(()));
    }

    /// Has this many clients make a call, and waits until instances may have taken the calls.
    fn begin(&mut self, what: What, clients: u64) -> Vec<JoinHandle<Kind>> {
        let begun = self.call(what, clients);
        std::thread::sleep(self.random.time(Duration::from_secs(1)));
        begun
    }

    /// Waits until the daemon has noticed that its VM has ended, and the process is gone.
    fn vm_has_ended(&self, vm: u32, position: usize) {
        let log = until("the daemon to notice", || {
            let log = self.host.log_from(position);
            let ended =
                |line: &&str| line.contains(": ended: ") && !line.contains("is no longer needed");
            log.lines().find(ended).map(str::to_owned)
        });
        self.world.ledger.say(&format!("    {}", log.trim()));
        until("the end of its process", || (!self.host.vms().contains(&vm)).then_some(()));
    }

    /// Repeatedly, including while the next one boots.
    fn kill_vm(&mut self) {
        for _ in 0..1 + self.random.below(3) {
            let (vm, position) = (self.host.vm(), self.host.log_length());
            signal(vm, Signal::KILL);
            self.vm_has_ended(vm, position);
            std::thread::sleep(self.random.time(Duration::from_secs(2)));
        }
    }

    /// Its instances and their VM make room for others: the memory suffices for one VM only.
    fn change_action(&self) {
        let path = format!("{}?overwrite=true", self.world.action());
        let body = json!({ "annotations": [{ "key": "changed", "value": true }] });
        let changed = self.world.endpoint().exchange("PUT", &path, Some(&body));
        assert!(matches!(changed, Ok((200, _))), "{changed:?}");
    }

    /// The VMM is responsive, but its guest's processors do nothing.
    fn hang_guest(&self, position: usize) {
        let vm = self.host.vm();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/soak/hold.py");
        let mut command = Command::new("python3");
        command.arg(script).args(self.host.processors(vm)).stdout(Stdio::piped());
        let mut holding = command.spawn().expect("python3 runs");
        let mut said = String::new();
        BufReader::new(holding.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if said.trim() == "held" {
            self.vm_has_ended(vm, position);
        } else {
            skip("threads cannot be held here");
        }
        holding.wait().unwrap();
    }

    /// A call that an instance has taken is completed before the daemon exits.
    fn restart(&mut self) {
        // With no other load, it is clear which call the instance has taken.
        let silence = self.world.silence();
        let taken = self.call(What::Works, 1);
        until("the call to be taken", || (self.host.busy() > 0).then_some(()));
        drop(silence);
        std::thread::sleep(Duration::from_millis(500));
        let _unread = send(&self.world, "fills");
        self.host.stop();
        for call in taken {
            assert_eq!(call.join().unwrap(), Kind::Right, "a call that was taken");
        }
        self.host.start();
    }

    /// Nothing can be logged, and no action changed; everything else works.
    fn fill_disk(&self) {
        if !self.host.disk.fill(0) {
            return skip("nothing can be mounted here");
        }
        let count = |what, kind| self.world.ledger.count(what, kind);
        let before = [count(What::Page, Kind::Right), count(What::Write, Kind::NotWritten)];
        until("pages, and an action that is not written", || {
            let now = [count(What::Page, Kind::Right), count(What::Write, Kind::NotWritten)];
            (now[0] >= before[0] + 3 && now[1] > before[1]).then_some(())
        });
        self.host.disk.free();
        let position = self.host.log_length();
        until("the log to go on", || (self.host.log_length() > position).then_some(()));
    }

    /// Some calls succeed, and the others are refused immediately.
    fn crowd(&self) {
        let crowd = self.call(What::Page, CROWD).into_iter();
        let kinds: Vec<_> = crowd.map(|client| client.join().unwrap()).collect();
        assert!(kinds.contains(&Kind::Right) && kinds.contains(&Kind::Busy), "{kinds:?}");
    }
}

fn stall(process: u32) {
    signal(process, Signal::STOP);
    std::thread::sleep(STALL);
    signal(process, Signal::CONT);
}

fn signal(process: u32, signal: Signal) {
    let id = Pid::from_raw(process as i32).expect("it is no 0");
    kill_process(id, signal).expect("the process is there");
}
