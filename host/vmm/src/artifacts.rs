//! Finds build products: kernels, the initramfs and function images.

use crate::{Result, VmError};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// The directory that contains them.
#[derive(Clone, Debug)]
pub struct Artifacts(PathBuf);

/// A configuration of the guest kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// With partitions. Behaves as a stock kernel unless its command line enables them.
    Release,
    /// Like `Release`, with the kernel's debug checks.
    Debug,
    /// Like `Release`, with a benchmark of the page allocator.
    Benchmark,
    /// Built with the option for partitions off.
    Off,
    /// Stock, with NUMA.
    Numa,
}

impl Kernel {
    /// The maximum number of processors of a guest (`CONFIG_NR_CPUS`).
    pub const MAX_PROCESSORS: u32 = 64;
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Release => "release",
            Self::Debug => "debug",
            Self::Benchmark => "benchmark",
            Self::Off => "off",
            Self::Numa => "numa",
        })
    }
}

impl Artifacts {
    /// `given`, else `$SQUEEZY_BUILD`, else `build` next to the `target` directory that the program
    /// is in, else `/usr/lib/squeezy`.
    pub fn find(given: Option<&Path>) -> Result<Self> {
        if let Some(path) = given {
            return Self::existing(path.to_owned());
        }
        if let Some(path) = std::env::var_os("SQUEEZY_BUILD") {
            return Self::existing(path.into());
        }
        let beside = std::env::current_exe().ok().and_then(|exe| {
            // target/release/squeezy, and target/debug/deps/test-0123 for tests.
            exe.ancestors()
                .skip(1)
                .find(|dir| dir.ends_with("target"))
                .map(|dir| dir.with_file_name("build"))
        });
        match beside {
            Some(path) if path.is_dir() => Ok(Self(path)),
            _ => Self::existing("/usr/lib/squeezy".into()),
        }
    }

    fn existing(path: PathBuf) -> Result<Self> {
        if path.is_dir() {
            Ok(Self(path))
        } else {
            Err(VmError::Missing {
                what: "the directory of kernels and images",
                path,
                remedy: "install squeezy-guest, build them with `make`, or give the directory with `--build` or $SQUEEZY_BUILD",
            })
        }
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Path of a kernel.
    pub fn kernel(&self, kernel: Kernel) -> PathBuf {
        self.0.join("kernel").join(kernel.to_string()).join("bzImage")
    }

    /// Path of the initramfs, which contains the agent.
    pub fn initramfs(&self) -> PathBuf {
        self.0.join("initramfs.cpio")
    }

    /// Path of a function's image.
    pub fn image(&self, function: &str) -> PathBuf {
        self.0.join("images").join(format!("{function}.erofs"))
    }
}
