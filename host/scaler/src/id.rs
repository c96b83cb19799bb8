//! Numbers that cannot be mixed up.

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
    /// Counts the VMs of a [`crate::Scaler`] from 0, in the order it was given them; none is used
    /// twice.
    VmIndex(u32)
}
number! {
    /// Counts the functions of a [`crate::Scaler`] from 0, in the order it was given them; none is
    /// used twice.
    FunctionIndex(u32)
}
number! {
    /// Counts instances from 0 over all functions; none is used twice.
    InstanceNumber(u64)
}
number! {
    /// Names a request; given by the caller, who must not use one twice.
    RequestNumber(u64)
}
