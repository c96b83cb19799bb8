//! Processes and metrics as containerd decodes them.

use crate::{
    error::{Error, Result},
    vm::{Listed, Usage},
};
use containerd_shim_protos::{
    api::ProcessInfo,
    cgroups_v2::metrics::{CPUStat, MemoryEvents, MemoryStat, Metrics, PidsStat},
    protobuf::{Message, MessageField, well_known_types::any::Any},
};

/// The metrics of a task: those of cgroup v2, whichever the host has, as all that ask understand them.
pub(super) fn metrics(usage: Usage) -> Result<Any> {
    let metrics = Metrics {
        memory: MessageField::some(MemoryStat {
            usage: usage.memory_bytes,
            usage_limit: usage.memory_limit_bytes,
            anon: usage.partition_bytes,
            pgfault: usage.page_faults,
            pgmajfault: usage.major_page_faults,
            ..Default::default()
        }),
        cpu: MessageField::some(CPUStat {
            usage_usec: usage.cpu_us,
            user_usec: usage.user_us,
            system_usec: usage.system_us,
            ..Default::default()
        }),
        memory_events: MessageField::some(MemoryEvents {
            oom_kill: usage.oom_kills,
            ..Default::default()
        }),
        pids: MessageField::some(PidsStat {
            current: usage.processes,
            limit: usage.processes_limit,
            ..Default::default()
        }),
        ..Default::default()
    };
    let value = metrics
        .write_to_bytes()
        .map_err(|error| Error::failed(format_args!("metrics: {error}")))?;
    let type_url = "io.containerd.cgroups.v2.Metrics".to_owned();
    Ok(Any { type_url, value, ..Default::default() })
}

/// A process of a task, with what runc's shim tells of one that was added.
pub(super) fn process(listed: Listed) -> ProcessInfo {
    let details = |added: &str| Any {
        type_url: "containerd.runc.v1.ProcessDetails".to_owned(),
        value: string_field(added),
        ..Default::default()
    };
    let info = listed.added.map(|added| details(added.as_str()));
    ProcessInfo { pid: listed.pid, info: info.into(), ..Default::default() }
}

/// A message whose first field is this text, which is an id.
fn string_field(text: &str) -> Vec<u8> {
    const FIRST_OF_BYTES: u8 = 1 << 3 | 2;
    let length = u8::try_from(text.len()).expect("an id is short");
    [&[FIRST_OF_BYTES, length], text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use containerd_shim_protos::{events::task::TaskPaused, protobuf::Message};

    #[test]
    fn a_process_that_was_added_is_named() {
        let listed = Listed { pid: 7, added: Some("more".parse().unwrap()) };
        let info = process(listed).info.unwrap();
        // A message of the same form.
        let details = TaskPaused::parse_from_bytes(&info.value).unwrap();
        assert_eq!(details.container_id, "more");
        let longest = "x".repeat(76);
        let listed = Listed { pid: 7, added: Some(longest.parse().unwrap()) };
        let info = process(listed).info.unwrap();
        assert_eq!(TaskPaused::parse_from_bytes(&info.value).unwrap().container_id, longest);
        assert!(process(Listed { pid: 7, added: None }).info.is_none());
    }
}
