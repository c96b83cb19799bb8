//! What every command must satisfy.

use super::*;

impl Model {
    pub(super) fn check(&mut self, command: Command) {
        match command {
            Command::BootVm(vm) => {
                assert_eq!(self.vms.insert(vm, VmModel::Booting), Some(VmModel::Absent));
                self.charged_bytes.insert(vm, self.vm_policy(vm).base_bytes);
                self.lent_bytes.insert(vm, 0);
                // Answers from before are not passed on.
                self.pending.retain(|c| !matches!(c, Command::LendVm { vm: v, .. } if *v == vm));
            }
            Command::LendVm { vm, bytes } => {
                assert_eq!(self.vms[&vm], VmModel::Up, "lent to a VM that does not run");
                assert!(bytes > 0, "nothing is lent");
                let lent_bytes = self.lent_bytes.entry(vm).or_default();
                *lent_bytes += bytes;
                assert!(*lent_bytes <= self.policies.vms[vm.0 as usize].instance_bytes, "too much");
                *self.charged_bytes.entry(vm).or_default() += bytes;
            }
            Command::PauseVm { vm, keeps_page_cache } => {
                let is_empty = self.instances.values().all(|instance| instance.vm != vm);
                assert!(keeps_page_cache || !is_empty, "nobody in it was squeezed");
                assert_eq!(self.vms.insert(vm, VmModel::Paused), Some(VmModel::Up));
                let rest = self.instances.values().filter(|b| b.vm == vm).all(|b| b.frozen);
                assert!(rest && self.stranded.values().all(|&(v, _)| v != vm), "paused while busy");
            }
            Command::ResumeVm(vm) => {
                assert_eq!(self.vms.insert(vm, VmModel::Up), Some(VmModel::Paused));
                self.pending.retain(|command| !pauses(command, vm));
                self.charged_bytes.insert(vm, self.base_bytes(vm));
                let within = self.instances.values_mut().filter(|entry| entry.vm == vm);
                within.for_each(|entry| entry.doomed = false);
            }
            Command::EndVm { vm, reason } => {
                assert_eq!(self.overdrawn.remove(&vm), reason == StopReason::Overdrawn);
                if reason == StopReason::Evicted {
                    self.check_taken(self.owner(vm));
                }
                let before = self.vms.insert(vm, VmModel::Ending);
                match before {
                    Some(VmModel::Paused) => {
                        self.pending.retain(|command| !pauses(command, vm));
                    }
                    _ => {
                        assert_eq!(before, Some(VmModel::Up));
                        assert!(
                            self.instances.values().all(|b| b.vm != vm),
                            "ended with live instances"
                        );
                    }
                }
            }
            Command::KillVm { vm, instance, taken_bytes, resident_bytes } => {
                assert!(self.overdrawn.remove(&vm), "killed for nothing");
                assert_eq!(self.vms.insert(vm, VmModel::Ending), Some(VmModel::Up));
                let charged_bytes = self.instances[&instance].charged_bytes;
                assert_eq!(resident_bytes, charged_bytes + taken_bytes);
                // Nothing in it takes a request any more, or is charged for less.
                self.unfit.insert(vm);
                let within = self.instances.iter().filter(|(_, entry)| entry.vm == vm);
                let within: Vec<_> = within.map(|(&number, _)| number).collect();
                within.into_iter().for_each(|number| self.forget_rest(number));
            }
            Command::Start { function, vm, instance } => {
                assert_eq!(self.vms[&vm], VmModel::Up, "an instance without a VM");
                assert_eq!(self.function_policy(function).vm, vm);
                assert!(!self.unfit.contains(&vm), "a start in an unfit VM");
                self.use_again(vm);
                let entry = InstanceEntry {
                    function,
                    vm,
                    running: false,
                    frozen: false,
                    doomed: false,
                    condemned: false,
                    requests: BTreeSet::new(),
                    dead: false,
                    broken: false,
                    free_since: self.now,
                    charged_bytes: self.vm_policy(vm).instance_bytes,
                    measured: self.now,
                };
                assert!(self.instances.insert(instance, entry).is_none(), "a number used twice");
                let vms = self
                    .instances
                    .values()
                    .map(|b| b.vm)
                    .chain(self.stranded.values().map(|&(vm, _)| vm));
                let count = vms.filter(|&v| v == vm).count();
                let most = self.vm_policy(vm).max_instances as usize;
                assert!(count <= most, "more instances than allowed");
                let own = self.instances.values().filter(|b| b.function == function).count();
                let most = self.function_policy(function).max_instances as usize;
                assert!(own <= most, "more instances of a function than allowed");
                let in_vm = |c: &&Command| matches!(c, Command::Start { vm: v, .. } if *v == vm);
                let starting = self.pending.iter().filter(in_vm).count() + 1;
                let most = self.vm_policy(vm).max_starting as usize;
                assert!(starting <= most, "more starts at a time than allowed");
            }
            Command::Dispatch { instance, request, thaw } => {
                let entry =
                    self.instances.get_mut(&instance).expect("a dispatch to an unknown instance");
                assert_eq!(self.waiting.remove(&request), Some(entry.function));
                assert!(!self.prewarms.contains(&request), "an instance was wanted, not a call");
                self.taken_at.insert(entry.function, self.now);
                assert!(entry.running, "a dispatch to an instance that is not running");
                assert!(!entry.dead && !entry.broken, "a dispatch to an instance that has failed");
                assert!(!entry.condemned, "a dispatch to a condemned instance");
                assert!(!self.unfit.contains(&entry.vm), "a dispatch to an unfit VM");
                assert_eq!(self.vms[&entry.vm], VmModel::Up, "a dispatch to a paused VM");
                assert_eq!(std::mem::take(&mut entry.frozen), thaw, "frozen with a request");
                assert!(entry.requests.insert(request), "one that it has already");
                let policy = self.policies.functions[entry.function.0 as usize];
                let most = usize::from(policy.requests_per_instance.get());
                assert!(entry.requests.len() <= most, "more requests at a time than allowed");
                entry.charged_bytes = self.policies.vms[entry.vm.0 as usize].instance_bytes;
                self.forget_rest(instance);
            }
            Command::Squeeze(instance) => {
                let entry =
                    self.instances.get_mut(&instance).expect("squeezed an unknown instance");
                assert!(entry.frozen && !entry.dead, "squeezed while busy");
                assert!(!entry.condemned, "squeezed without memory");
                assert_eq!(self.vms[&entry.vm], VmModel::Up, "squeezed in a paused VM");
                entry.charged_bytes = self.policies.vms[entry.vm.0 as usize].instance_bytes;
                assert!(!self.pending.contains(&command), "squeezed twice");
            }
            Command::Freeze(instance) => {
                let entry = self.instances.get_mut(&instance).expect("froze an unknown instance");
                assert!(entry.running && entry.requests.is_empty(), "frozen during a request");
                assert!(!std::mem::replace(&mut entry.frozen, true), "frozen twice");
            }
            Command::Condemn(instance) => {
                let entry = self.instances.get_mut(&instance).expect("condemned nobody");
                let (vm, used) = (entry.vm, (entry.free_since, instance));

                assert!(std::mem::take(&mut entry.doomed), "condemned what may be in use");
                assert!(!std::mem::replace(&mut entry.condemned, true), "condemned twice");
                assert_eq!(self.vms[&vm], VmModel::Paused, "condemned in a VM that runs");
                assert!(!self.is_being_paused(vm), "it is not paused yet");
                let mut others = self.instances.iter().filter(|(_, e)| e.vm == vm && !e.condemned);
                let later = others.any(|(&number, other)| (other.free_since, number) > used);
                assert!(later, "condemned the one that was used last");
                self.check_taken(self.owner(vm));
            }
            Command::Stop { instance, reason } => {
                let entry = &self.instances[&instance];
                let (vm, condemned) = (entry.vm, entry.condemned);
                assert!(entry.requests.is_empty(), "stopped during a request");
                assert_eq!(self.vms[&entry.vm], VmModel::Up, "stopped in a paused VM");
                if reason == StopReason::KeepAliveOver {
                    let keep_alive = self.function_policy(entry.function).keep_alive;
                    assert!(self.now.since(entry.free_since) >= keep_alive, "stopped too early");
                }
                if reason == StopReason::Evicted && !condemned {
                    self.check_taken(self.owner(vm));
                }
                self.forget_rest(instance);
            }
            Command::Prewarmed(request) => {
                assert!(self.prewarms.contains(&request), "a call has no answer but an instance's");
                let function = self.waiting.remove(&request).expect("a waiting request");
                let mut own = self.instances.values().filter(|b| b.function == function);
                assert!(own.any(|entry| entry.running), "there is no instance");
                self.answer(request);
            }
            Command::Reclaim { instance, vm } => {
                // Stranded memory that is asked for again has no instance any more.
                assert!(self.instances.get(&instance).is_none_or(|b| !b.running && b.vm == vm));
            }
            Command::Reject { request, reason } => {
                if let RejectReason::WaitedTooLong(_) = reason {
                    assert!(self.has_waited_too_long(request), "rejected too early");
                }
                let function = self.waiting.remove(&request);
                if reason == RejectReason::NoRoomAhead {
                    assert!(self.prewarms.contains(&request), "a call may wait");
                    assert!(!self.has_room(function.expect("a waiting request")), "{self}");
                }
                if reason == RejectReason::QueueFull {
                    assert!(!self.sent_on.contains(&request), "it has had a place");
                }
                if reason == RejectReason::TooManyCalls {
                    assert!(!self.prewarms.contains(&request), "it is no call");
                    let tenant = self.tenant_of(function.expect("a waiting request"));
                    let most = self.tenant_policy(tenant).calls;
                    assert!(most.is_some_and(|most| self.calls_of(tenant) >= most), "it had room");
                }
                self.answer(request);
            }
        }
    }
}
