//! Ordinary memory, from which a balloon takes what is not in use.

use super::{Elastic, GuestDriven, GuestMemory, Layout, Running};
use crate::{Result, backend::Device};

/// The guest boots with all of it. The balloon takes it at start, and deflates as memory is
/// requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balloon {
    /// Bytes besides the base.
    pub extra_bytes: u64,
}

impl GuestMemory for Balloon {
    fn check(&self, _: u32) -> Result<()> {
        Ok(())
    }

    fn layout(&self, base_bytes: u64) -> Layout {
        let boot_bytes = base_bytes.saturating_add(self.extra_bytes);
        Layout { boot_bytes, balloon: true, ..Layout::ram(base_bytes) }
    }

    fn start(&self, vm: &Running) -> Vec<Box<dyn Elastic>> {
        let (all, none) = (self.extra_bytes, 0);
        vec![Box::new(GuestDriven::new(vm, Device::Balloon, all, all, none))]
    }
}
