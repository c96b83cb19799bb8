//! Enums whose values have names.

/// Implements parsing an enum from its names, and formatting it.
macro_rules! names {
    ($type:ty { $($variant:path = $name:literal),+ $(,)? }) => {
        impl std::str::FromStr for $type {
            type Err = $crate::VmError;

            fn from_str(text: &str) -> $crate::Result<Self> {
                match text {
                    $($name => Ok($variant),)+
                    _ => Err($crate::VmError::Config(format!(
                        "`{text}` is not one of {}", [$($name),+].join(", ")
                    ))),
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self { $($variant => $name),+ })
            }
        }
    };
}
pub(crate) use names;

#[cfg(test)]
mod tests {
    use crate::{AcceleratorChoice, MemoryBackend};

    #[test]
    fn names_read_back_as_they_are_written() {
        for choice in [AcceleratorChoice::Auto, AcceleratorChoice::Kvm, AcceleratorChoice::Tcg] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert!(
            "xen".parse::<AcceleratorChoice>().unwrap_err().to_string().contains("auto, kvm, tcg")
        );
        assert_eq!("memfd".parse(), Ok(MemoryBackend::Memfd));
    }
}
