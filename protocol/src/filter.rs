//! Filters of system calls.

use crate::bytes;
use serde::{Deserialize, Serialize};

/// A program of classic BPF that the kernel asks before each system call. It is the kernel that checks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SystemCallFilter(#[serde(with = "bytes")] Vec<u8>);

/// An instruction: `struct sock_filter` of `linux/filter.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// How many instructions it skips if its condition is true.
    pub jump_true: u8,
    /// How many if it is not.
    pub jump_false: u8,
    /// Its operand.
    pub operand: u32,
}

/// Why something is no [`SystemCallFilter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFilter {
    /// It is empty, too long, or no number of instructions.
    #[error(
        "a filter has 1 to {} instructions of {BYTES} bytes",
        SystemCallFilter::MAX_INSTRUCTIONS
    )]
    Length,
    /// It can say that a call was made which was not. Whoever gives up privileges behind it would keep them.
    #[error("a filter must not say that a call has succeeded which it has refused (error 0)")]
    Success,
}

/// Of an instruction.
const BYTES: usize = 8;
/// The mask and the value of the codes of instructions that return, and what a constant is returned with.
const RETURN: (u16, u16) = (0x07, 0x06);
const RETURN_CONSTANT: u16 = 0x06;
/// What a filter returns for a call that is not made: the lower half of it is the error (`SECCOMP_RET_ERRNO`).
const RET_ERRNO: u32 = 0x0005_0000;

impl SystemCallFilter {
    /// Most filters of an instance.
    pub const MAX_COUNT: usize = 8;
    /// The longest one: Linux's own limit.
    pub const MAX_INSTRUCTIONS: usize = 4096;

    /// A filter of these instructions.
    pub fn new(instructions: impl IntoIterator<Item = Instruction>) -> Self {
        let bytes = |instruction: Instruction| {
            let Instruction { code, jump_true, jump_false, operand } = instruction;
            let ([a, b], [c, d, e, f]) = (code.to_le_bytes(), operand.to_le_bytes());
            [a, b, jump_true, jump_false, c, d, e, f]
        };
        Self(instructions.into_iter().flat_map(bytes).collect())
    }

    /// Its instructions.
    pub fn instructions(&self) -> impl Iterator<Item = Instruction> {
        self.0.as_chunks().0.iter().map(
            |&[a, b, jump_true, jump_false, c, d, e, f]: &[u8; BYTES]| {
                let (code, operand) =
                    (u16::from_le_bytes([a, b]), u32::from_le_bytes([c, d, e, f]));
                Instruction { code, jump_true, jump_false, operand }
            },
        )
    }

    /// Checks its length, and that it only returns constants, none of which is a success without a call.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), InvalidFilter> {
        let is_whole = self.0.len().is_multiple_of(BYTES);
        if !is_whole || !(1..=Self::MAX_INSTRUCTIONS).contains(&(self.0.len() / BYTES)) {
            return Err(InvalidFilter::Length);
        }
        let pretends = |Instruction { code, operand, .. }: Instruction| {
            code & RETURN.0 == RETURN.1 && (code != RETURN_CONSTANT || operand == RET_ERRNO)
        };
        if self.instructions().any(pretends) { Err(InvalidFilter::Success) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTRUCTION: Instruction =
        Instruction { code: 0x1234, jump_true: 5, jump_false: 6, operand: 0x789a_bcde };

    #[test]
    fn a_filter_survives_as_it_is() {
        let filter = SystemCallFilter::new([INSTRUCTION; 3]);
        let text = serde_json::to_string(&filter).unwrap();
        let read: SystemCallFilter = serde_json::from_str(&text).unwrap();
        assert!(read.check().is_ok() && read.instructions().eq([INSTRUCTION; 3]));
    }

    #[test]
    fn its_length_is_checked() {
        let longest = vec![INSTRUCTION; SystemCallFilter::MAX_INSTRUCTIONS];
        assert_eq!(SystemCallFilter::new(longest.clone()).check(), Ok(()));
        for filter in [
            SystemCallFilter(Vec::new()),
            SystemCallFilter(vec![0; 7]),
            SystemCallFilter(vec![0; 9]),
            SystemCallFilter::new(longest.into_iter().chain([INSTRUCTION])),
        ] {
            assert_eq!(filter.check(), Err(InvalidFilter::Length));
        }
    }

    #[test]
    fn a_call_that_is_not_made_has_an_error() {
        let returned = |code, operand| {
            let returns = Instruction { code, jump_true: 0, jump_false: 0, operand };
            SystemCallFilter::new([INSTRUCTION, returns]).check()
        };
        for operand in [0, RET_ERRNO | 1, RET_ERRNO | 4095, 0x7fff_0000, 0x8000_0000] {
            assert_eq!(returned(RETURN_CONSTANT, operand), Ok(()));
        }
        assert_eq!(returned(RETURN_CONSTANT, RET_ERRNO), Err(InvalidFilter::Success));
        // The accumulator.
        assert_eq!(returned(0x16, 0), Err(InvalidFilter::Success));
    }
}
