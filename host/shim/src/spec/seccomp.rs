//! Profiles of seccomp, as programs for the guest's kernel.
//!
//! A program has one action for the calls that it lists and one for all others, a profile one for each rule. So a profile
//! is several programs, of whose answers the kernel takes the strictest: one for each action, which allows what does not
//! have it, and one with the profile's own action for what has no rule.

use super::{document, refused};
use crate::error::{Error, Result};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};
use squeezy_protocol::{Instruction, SystemCallFilter};
use std::collections::{BTreeMap, btree_map::Entry};
use syscalls::Sysno;

/// What a call fails with if its rule does not say: EPERM.
const DEFAULT_ERRNO: u32 = 1;
/// The highest error number.
const MAX_ERRNO: u32 = 4095;
/// Most calls in all rules together, each as often as it is there.
const MAX_CALLS: usize = 16 << 10;
/// Most conditions of arguments in a profile, those of a rule counted for each of its system calls.
const MAX_ARGUMENTS: usize = 16 << 10;

/// The programs of a profile, in the order in which they are to be installed: the last one may not allow others.
pub(super) fn filters(profile: &document::Seccomp) -> Result<Vec<SystemCallFilter>> {
    if profile.syscalls.iter().map(|rule| rule.names.len()).sum::<usize>() > MAX_CALLS {
        return refused(&format!("a seccomp profile with more than {MAX_CALLS} calls"));
    }
    let default = action(&profile.default_action, profile.default_errno)?;
    let mut of_actions: Vec<(SeccompAction, Calls)> = Vec::new();
    let mut with_rule = Calls::default();
    let mut count = 0;
    for rule in &profile.syscalls {
        let action = action(&rule.action, rule.errno)?;
        if action == default {
            continue;
        }
        // Each name has a copy of them.
        count += rule.names.len() * rule.args.len();
        if count > MAX_ARGUMENTS {
            return refused("a seccomp profile with so many conditions of arguments");
        }
        let rules = rules(&rule.args)?;
        // Names of other architectures are left out, as by libseccomp.
        for call in rule.names.iter().filter_map(|name| name.parse::<Sysno>().ok()) {
            with_rule.add(call, &rules);
            match of_actions.iter_mut().find(|(known, _)| *known == action) {
                Some((_, calls)) => calls.add(call, &rules),
                None => {
                    let mut calls = Calls::default();
                    calls.add(call, &rules);
                    of_actions.push((action.clone(), calls));
                }
            }
        }
    }
    of_actions.retain(|(action, _)| *action != SeccompAction::Allow);
    let mut filters: Vec<SystemCallFilter> = of_actions
        .into_iter()
        .map(|(action, calls)| calls.filter(SeccompAction::Allow, action))
        .collect::<Result<_>>()?;
    if default != SeccompAction::Allow {
        filters.push(with_rule.filter(default, SeccompAction::Allow)?);
    }
    if filters.len() > SystemCallFilter::MAX_COUNT {
        return refused("a seccomp profile with so many different actions");
    }
    Ok(filters)
}

/// System calls, each with the rules of which one has to hold; with any arguments if there are none.
#[derive(Default)]
struct Calls(BTreeMap<i64, Vec<SeccompRule>>);

impl Calls {
    fn add(&mut self, call: Sysno, rules: &[SeccompRule]) {
        match self.0.entry(call.id().into()) {
            Entry::Vacant(entry) => {
                entry.insert(rules.to_vec());
            }
            Entry::Occupied(entry) if entry.get().is_empty() => {}
            Entry::Occupied(mut entry) if rules.is_empty() => entry.get_mut().clear(),
            Entry::Occupied(mut entry) => entry.get_mut().extend_from_slice(rules),
        }
    }

    fn filter(self, otherwise: SeccompAction, listed: SeccompAction) -> Result<SystemCallFilter> {
        let filter = SeccompFilter::new(self.0, otherwise, listed, TargetArch::x86_64);
        let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(wrong)?;
        let instructions = program.iter().map(|instruction| Instruction {
            code: instruction.code,
            jump_true: instruction.jt,
            jump_false: instruction.jf,
            operand: instruction.k,
        });
        Ok(SystemCallFilter::new(instructions))
    }
}

fn action(name: &str, errno: Option<u32>) -> Result<SeccompAction> {
    let errno = errno.unwrap_or(DEFAULT_ERRNO);
    // With 0, a call would seem to be made, that which gives up privileges included.
    if errno > MAX_ERRNO || errno == 0 && name == "SCMP_ACT_ERRNO" {
        return Err(Error::invalid(format_args!("the seccomp profile: {errno} is no error")));
    }
    match name {
        "SCMP_ACT_ALLOW" => Ok(SeccompAction::Allow),
        "SCMP_ACT_ERRNO" => Ok(SeccompAction::Errno(errno)),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Ok(SeccompAction::KillThread),
        "SCMP_ACT_KILL_PROCESS" => Ok(SeccompAction::KillProcess),
        "SCMP_ACT_LOG" => Ok(SeccompAction::Log),
        "SCMP_ACT_TRACE" => Ok(SeccompAction::Trace(errno)),
        "SCMP_ACT_TRAP" => Ok(SeccompAction::Trap),
        other => refused(&format!("{other:?} in a seccomp profile")),
    }
}

/// The rules that these arguments are: one, or one for each if one argument is there more than once.
fn rules(arguments: &[document::Argument]) -> Result<Vec<SeccompRule>> {
    let conditions: Vec<SeccompCondition> =
        arguments.iter().map(condition).collect::<Result<_>>()?;
    let indexes: std::collections::BTreeSet<u8> =
        arguments.iter().map(|argument| argument.index).collect();
    let of_rules = if conditions.is_empty() {
        Vec::new()
    } else if indexes.len() == conditions.len() {
        vec![conditions]
    } else {
        conditions.into_iter().map(|condition| vec![condition]).collect()
    };
    of_rules.into_iter().map(|conditions| SeccompRule::new(conditions).map_err(wrong)).collect()
}

fn condition(argument: &document::Argument) -> Result<SeccompCondition> {
    let (operator, value) = match argument.op.as_str() {
        "SCMP_CMP_NE" => (SeccompCmpOp::Ne, argument.value),
        "SCMP_CMP_LT" => (SeccompCmpOp::Lt, argument.value),
        "SCMP_CMP_LE" => (SeccompCmpOp::Le, argument.value),
        "SCMP_CMP_EQ" => (SeccompCmpOp::Eq, argument.value),
        "SCMP_CMP_GE" => (SeccompCmpOp::Ge, argument.value),
        "SCMP_CMP_GT" => (SeccompCmpOp::Gt, argument.value),
        "SCMP_CMP_MASKED_EQ" => (SeccompCmpOp::MaskedEq(argument.value), argument.second_value),
        other => return refused(&format!("{other:?} in a seccomp profile")),
    };
    SeccompCondition::new(argument.index, SeccompCmpArgLen::Qword, operator, value).map_err(wrong)
}

fn wrong(error: BackendError) -> Error {
    Error::invalid(format_args!("the seccomp profile: {error}"))
}

#[cfg(test)]
mod tests;
