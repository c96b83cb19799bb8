//! Memory that the VM has from its start, and keeps.

use super::{Elastic, GuestMemory, Layout, Running};
use crate::Result;

/// Nothing is resizable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// Bytes besides the base.
    pub extra_bytes: u64,
}

impl GuestMemory for Fixed {
    fn check(&self, _: u32) -> Result<()> {
        Ok(())
    }

    fn layout(&self, base_bytes: u64) -> Layout {
        Layout::ram(base_bytes.saturating_add(self.extra_bytes))
    }

    fn start(&self, _: &Running) -> Vec<Box<dyn Elastic>> {
        Vec::new()
    }
}
