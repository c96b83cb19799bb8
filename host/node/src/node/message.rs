//! What reaches the actor: from handles, and from what it has begun itself.

use super::{FunctionLimits, NodeError, NodeStatus};
use crate::{
    Answer, Blueprint, Call, CallError, Contract, FunctionImage, InstanceError, Machine, Reply,
    ResizeOutcome, SqueezeReport, StartTimes, instance::LogPosition,
};
use futures_util::stream::FuturesUnordered;
use squeezy_protocol::{ExitReason, Partition};
use squeezy_scaler::{
    FunctionIndex, InstanceNumber, Moment, PolicyError, RequestNumber, VmIndex, VmPolicy,
};
use squeezy_vmm::{BoxFuture, VmError};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// What comes of a call that somebody has taken, or that waits for somebody who does.
pub(super) type PendingAnswer = oneshot::Receiver<Result<Answer, CallError>>;

/// The partitions of each VM that runs.
pub(super) type PartitionsOfVms = Vec<(VmIndex, Option<Vec<Partition>>)>;

/// What a handle wants.
pub(super) enum Message {
    AddVm {
        blueprint: Arc<dyn Blueprint>,
        policy: VmPolicy,
        reply: oneshot::Sender<Result<VmIndex, PolicyError>>,
    },
    AddFunction {
        vm: VmIndex,
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
    RemoveFunction(FunctionIndex),
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

/// A command that has been carried out, or something that has happened by itself.
pub(super) enum Completion {
    Booted {
        vm: VmIndex,
        result: Result<Arc<dyn Machine>, VmError>,
        took: Duration,
    },
    Paused {
        vm: VmIndex,
        generation: u64,
        result: Result<u64, VmError>,
    },
    Resumed {
        vm: VmIndex,
        result: Result<(), VmError>,
    },
    VmStopped {
        vm: VmIndex,
        result: Result<(), VmError>,
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
        result: Result<u64, InstanceError>,
    },
    Squeezed {
        instance: InstanceNumber,
        generation: u64,
        result: Result<SqueezeReport, InstanceError>,
    },
    InstanceEnded {
        instance: InstanceNumber,
        reason: Option<ExitReason>,
    },
    Stopped {
        stopped: Vec<(InstanceNumber, Result<(), InstanceError>)>,
        others: Stopping,
    },
    Reclaimed {
        instance: InstanceNumber,
        vm: VmIndex,
        /// Nothing when its memory was asked back before.
        first: Option<FirstReclaim>,
        outcome: ResizeOutcome,
    },
    Called {
        instance: InstanceNumber,
        request: RequestNumber,
        reply: Reply,
        took: Duration,
        logs: Vec<String>,
        position: LogPosition,
    },
    /// Nothing that matters any more.
    Nothing,
}

/// Of an instance whose memory is asked back, what is told with what comes of it.
pub(super) struct FirstReclaim {
    pub(super) function: FunctionIndex,
    pub(super) asked: Moment,
    /// From when it was told to end, or had died, until now; nothing when it never came to be.
    pub(super) stop: Option<Duration>,
}

/// Instances that are being stopped.
pub(super) type Stopping =
    FuturesUnordered<BoxFuture<'static, (InstanceNumber, Result<(), InstanceError>)>>;
