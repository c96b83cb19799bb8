//! Points in time as protobuf has them.

use containerd_shim_protos::protobuf::well_known_types::timestamp::Timestamp;
use std::time::SystemTime;

/// Now; 1970 on a machine whose clock is before that.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).expect("less than 10^9"),
        ..Default::default()
    }
}
