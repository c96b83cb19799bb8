//! What the actor receives: messages from handles, and the results of its own tasks.

use super::{
    FunctionLimits, NodeError, NodeStatus, condemn::Doomed, prewarm::PendingPrewarmed,
    rest::AtRest, watch::Found,
};
use crate::{
    Answer, Blueprint, Call, CallError, Contract, FunctionImage, InstanceError, Machine, Reply,
    ResizeOutcome, SqueezeReport, StartTimes,
};
use futures_util::stream::FuturesUnordered;
use squeezy_protocol::{ExitReason, Partition, PartitionNumber};
use squeezy_scaler::{
    FunctionIndex, InstanceNumber, Moment, PolicyError, RequestNumber, StopReason, TenantIndex,
    TenantPolicy, VmIndex, VmPolicy,
};
use squeezy_vmm::{BoxFuture, VmError};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// Resolves to the result of a call that was not rejected at once.
pub(super) type PendingAnswer = oneshot::Receiver<Result<Answer, CallError>>;

/// The partitions of each running VM.
pub(super) type PartitionsOfVms = Vec<(VmIndex, Option<Vec<Partition>>)>;

/// A request from a handle.
pub(super) enum Message {
    AddVm {
        blueprint: Arc<dyn Blueprint>,
        policy: VmPolicy,
        reply: oneshot::Sender<Result<VmIndex, PolicyError>>,
    },
    AddTenant {
        policy: TenantPolicy,
        reply: oneshot::Sender<Result<TenantIndex, PolicyError>>,
    },
    UpdateTenant {
        tenant: TenantIndex,
        policy: TenantPolicy,
        reply: oneshot::Sender<Result<(), PolicyError>>,
    },
    RemoveTenant(TenantIndex),
    AddFunction {
        vm: VmIndex,
        tenant: TenantIndex,
        function: Box<FunctionImage>,
        contract: Arc<dyn Contract>,
        limits: FunctionLimits,
        reply: oneshot::Sender<Result<FunctionIndex, NodeError>>,
    },
    UpdateFunction {
        function: FunctionIndex,
        limits: FunctionLimits,
        reply: oneshot::Sender<Result<(), PolicyError>>,
    },
    KeepEmptyVms(Option<Duration>),
    Prewarm {
        function: FunctionIndex,
        relieves: FunctionIndex,
        reply: oneshot::Sender<Option<PendingPrewarmed>>,
    },
    RemoveFunction(FunctionIndex),
    EndCalls(TenantIndex),
    Call {
        function: FunctionIndex,
        call: Call,
        reply: oneshot::Sender<Result<PendingAnswer, CallError>>,
    },
    EvictIdle,
    Status(oneshot::Sender<NodeStatus>),
    Partitions(oneshot::Sender<PartitionsOfVms>),
    Drain,
    Kill,
}

/// The result of a command, or something that happened by itself.
pub(super) enum Completion {
    Booted {
        vm: VmIndex,
        result: Result<Arc<dyn Machine>, VmError>,
        took: Duration,
    },
    Paused {
        vm: VmIndex,
        generation: u64,
        doomed: Doomed,
        result: Result<u64, VmError>,
    },
    Resumed {
        vm: VmIndex,
        result: Result<(), VmError>,
    },
    VmStopped {
        vm: VmIndex,
        reason: StopReason,
        result: Result<(), VmError>,
    },
    Starved {
        vm: VmIndex,
        boot: u64,
        wanted_bytes: u64,
    },
    Lent {
        vm: VmIndex,
        boot: u64,
        /// The most that it was to be lent.
        bytes: u64,
        /// What it was lent, in bytes.
        result: Result<u64, VmError>,
    },
    LookDue {
        vm: VmIndex,
        boot: u64,
    },
    Looked {
        vm: VmIndex,
        boot: u64,
        found: Vec<Found>,
    },
    VmGone {
        vm: VmIndex,
        boot: u64,
    },
    Plugged {
        instance: InstanceNumber,
        function: FunctionIndex,
        asked: Moment,
        outcome: ResizeOutcome,
    },
    Started {
        instance: InstanceNumber,
        result: Result<StartTimes, InstanceError>,
    },
    Frozen {
        instance: InstanceNumber,
        generation: u64,
        result: Result<AtRest, InstanceError>,
    },
    Squeezed {
        instance: InstanceNumber,
        generation: u64,
        result: Result<SqueezeReport, InstanceError>,
    },
    Condemned {
        instance: InstanceNumber,
        /// Bytes of host memory that the host got back.
        result: Result<u64, InstanceError>,
        took: Duration,
    },
    InstanceEnded {
        instance: InstanceNumber,
        reason: Option<ExitReason>,
    },
    Stopped {
        /// With the partition that each was in.
        stopped: Vec<(InstanceNumber, Result<Option<PartitionNumber>, InstanceError>)>,
        others: Stopping,
    },
    Reclaimed {
        instance: InstanceNumber,
        vm: VmIndex,
        /// Absent if its memory has been asked back before.
        first: Option<FirstReclaim>,
        outcome: ResizeOutcome,
    },
    Called {
        instance: InstanceNumber,
        request: RequestNumber,
        reply: Reply,
        took: Duration,
        logs: Vec<String>,
    },
    /// Nothing left to handle.
    Nothing,
}

/// Facts about an instance's first reclaim, to be reported with its result.
pub(super) struct FirstReclaim {
    pub(super) function: FunctionIndex,
    pub(super) asked: Moment,
    /// Time from its stop or death until the reclaim; absent if it never existed.
    pub(super) stop: Option<Duration>,
}

/// Instances that are being stopped.
pub(super) type Stopping = FuturesUnordered<
    BoxFuture<'static, (InstanceNumber, Result<Option<PartitionNumber>, InstanceError>)>,
>;
