//! Typed indices and numbers, so that they cannot be mixed up.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Index of a tenant, counted in the order in which they were added to the [`crate::Scaler`]. Never reused.
    TenantIndex(u32)
}
number! {
    /// Index of a VM, counted from 0 in the order in which they were added to the [`crate::Scaler`]. Never
    /// reused.
    VmIndex(u32)
}
number! {
    /// Index of a function, counted from 0 in the order in which they were added to the [`crate::Scaler`].
    /// Never reused.
    FunctionIndex(u32)
}
number! {
    /// Number of an instance, counted from 0 across all functions. Never reused.
    InstanceNumber(u64)
}
number! {
    /// Number of a request, chosen by the caller, who must not reuse one.
    RequestNumber(u64)
}

impl TenantIndex {
    /// The tenant that every scaler has from the start, with a weight of 1 and no quota.
    pub const FIRST: Self = Self(0);
}
