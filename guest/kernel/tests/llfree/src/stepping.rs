//! Accesses one at a time.

use crate::explore::step;
use squeezy_llfree::{Memory, TreeIndex};

/// The host's view of a state that lets others go on before each access.
#[derive(Debug)]
pub struct Stepping<M>(pub M);

impl<M: Memory> Memory for Stepping<M> {
    fn areas(&self) -> u32 {
        self.0.areas()
    }

    fn area(&self, area: u32) -> u16 {
        step();
        self.0.area(area)
    }

    fn replace_area(&self, area: u32, old: u16, new: u16) -> bool {
        step();
        self.0.replace_area(area, old, new)
    }

    fn replace_four(&self, first: u32, old: [u16; 4], new: [u16; 4]) -> bool {
        step();
        self.0.replace_four(first, old, new)
    }

    fn clear_area(&self, area: u32, bits: u16) {
        step();
        self.0.clear_area(area, bits);
    }

    fn word(&self, area: u32, number: u32) -> u64 {
        step();
        self.0.word(area, number)
    }

    fn tree(&self, tree: TreeIndex) -> u32 {
        step();
        self.0.tree(tree)
    }

    fn replace_tree(&self, tree: TreeIndex, old: u32, new: u32) -> Result<(), u32> {
        step();
        self.0.replace_tree(tree, old, new)
    }

    fn add_to_tree(&self, tree: TreeIndex, difference: u32) -> u32 {
        step();
        self.0.add_to_tree(tree, difference)
    }

    fn clear_tree(&self, tree: TreeIndex, bits: u32) {
        step();
        self.0.clear_tree(tree, bits);
    }

    fn epoch(&self) -> u32 {
        step();
        self.0.epoch()
    }

    fn set_epoch(&self, epoch: u32) {
        step();
        self.0.set_epoch(epoch);
    }

    fn set_held(&self, areas: u32) {
        step();
        self.0.set_held(areas);
    }

    fn reserve(&self) -> u32 {
        step();
        self.0.reserve()
    }

    fn starved(&self) -> u32 {
        step();
        self.0.starved()
    }

    fn want(&self) -> u32 {
        step();
        self.0.want()
    }

    fn doom(&self) -> u32 {
        step();
        self.0.doom()
    }

    fn set_condemned(&self, doom: u32) {
        step();
        self.0.set_condemned(doom);
    }
}
