//! How a VM's free memory gets back to the host while it runs.

use crate::error::Result;
use squeezy_vmm::{Grain, Kernel, Llfree, Vm, VmConfig};
use std::{fmt, time::Duration};

/// How often the host takes what is free in the HyperAlloc paper.
pub(crate) const PERIOD: Duration = Duration::from_secs(5);
/// How often it may where that costs the guest nothing.
pub(crate) const SHORT_PERIOD: Duration = Duration::from_secs(1);

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reclaim {
    /// Not at all; Linux' own allocator.
    Nothing,
    /// Not at all; LLFree.
    NothingLlfree,
    /// Linux reports free blocks of this order and more through the balloon, 2 s after one has become free.
    Reporting(u32),
    /// The same after a tenth of a second, as in the HyperAlloc paper.
    ReportingSoon(u32),
    /// The host takes what is free once in this time.
    Soft(Grain, Duration),
}

impl fmt::Display for Reclaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.pad("nothing"),
            Self::NothingLlfree => f.pad("nothing, llfree"),
            Self::Reporting(9) => f.pad("reporting"),
            Self::Reporting(order) => f.pad(&format!("reporting, order {order}")),
            Self::ReportingSoon(9) => f.pad("reporting, 100ms"),
            Self::ReportingSoon(order) => f.pad(&format!("reporting, order {order}, 100ms")),
            Self::Soft(grain, period) => {
                let pages = if *grain == Grain::Page { ", pages" } else { "" };
                let period =
                    if *period == PERIOD { String::new() } else { format!(", {period:?}") };
                f.pad(&format!("soft{pages}{period}"))
            }
        }
    }
}

/// What they are called in plots.
pub(crate) const LEGEND: &str = "nothing: never given back. reporting: Linux' free page reporting, of blocks of 2 MiB \
     or, with order 0, of pages, after 2 s or 100 ms. soft: the host takes free blocks of 2 MiB, or pages, too, every 5 s or 1 s.";

impl Reclaim {
    /// Those that are worth a comparison over a long time.
    pub(crate) const COMPARED: [Self; 4] = [
        Self::Nothing,
        Self::Reporting(9),
        Self::Soft(Grain::Area, PERIOD),
        Self::Soft(Grain::Page, PERIOD),
    ];

    /// Those of a trial: what no target compares is for the picture, and measured in the first one only.
    pub(crate) fn in_trial(all: &[Self], trial: u32) -> impl Iterator<Item = Self> + '_ {
        let is_judged = |way: &Self| matches!(way, Self::Reporting(9) | Self::Soft(..));
        all.iter().copied().filter(move |way| trial == 0 || is_judged(way))
    }

    pub(super) fn configure(self, config: &mut VmConfig) {
        match self {
            Self::Nothing => {}
            // The host could, but does not.
            Self::NothingLlfree | Self::Soft(..) => config.llfree = Llfree::All,
            Self::Reporting(order) | Self::ReportingSoon(order) => {
                config.free_page_reporting = true;
                let order = format!("page_reporting.page_reporting_order={order}");
                config.command_line.push(order);
            }
        }
        if let Self::ReportingSoon(_) = self {
            config.command_line.push("page_reporting.page_reporting_delay_ms=100".to_owned());
        }
    }

    /// The kernel in which it can be done.
    pub(crate) fn kernel(self) -> Kernel {
        match self {
            Self::ReportingSoon(_) => Kernel::Benchmark,
            _ => Kernel::Release,
        }
    }

    /// How often [`Self::act`] is to be called.
    pub(super) fn period(self) -> Option<Duration> {
        match self {
            Self::Soft(_, period) => Some(period),
            _ => None,
        }
    }

    /// What the host does.
    pub(super) async fn act(self, vm: &Vm) -> Result {
        if let Self::Soft(grain, _) = self {
            vm.take_all_free(grain).await?;
        }
        Ok(())
    }
}
