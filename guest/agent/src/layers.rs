//! Layers of instances' roots: read-only file systems in ranges of the pool, which is one drive.
//!
//! Each range is made a partition of the drive by call, without a table on it, and mounted. A drive for each would need
//! hot-plugging.

use crate::{
    detached::{detach, leave},
    error::ApiError,
    init::{device_of, mount_filesystem},
};
use rustix::mount::MountFlags;
use squeezy_protocol::{ErrorCode, Layer};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    os::fd::AsRawFd,
    path::Path,
    time::Duration,
};

/// Where layers are mounted, each in a directory named after its offset.
const DIRECTORY: &str = "/run/squeezy/layers";
/// How long the kernel may take to close a file system that is unmounted. The mounts of an instance are cleaned up a
/// moment after its last process has ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE_PAUSE: Duration = Duration::from_millis(5);
/// What Linux counts the size of a drive in, in bytes.
const SECTOR_BYTES: u64 = 512;

/// The layers of the VM.
#[derive(Debug, Default)]
pub struct Layers {
    /// By their offsets.
    known: RefCell<BTreeMap<u64, Known>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    layer: Layer,
    /// The number of its partition of the drive.
    number: u8,
    /// Whether it is being removed, or could not be to the end.
    is_leaving: bool,
}

impl Layers {
    /// Mounts a layer.
    pub fn add(&self, layer: Layer) -> Result<(), ApiError> {
        let pool = pool()?;
        let sectors = fs::read_to_string(format!("/sys/block/{pool}/size"))
            .and_then(|text| text.trim().parse::<u64>().map_err(io::Error::other))
            .map_err(|error| ApiError::internal("reading the size of the pool", error))?;
        let mut known = self.known.borrow_mut();
        let number = place(&known, layer, sectors.saturating_mul(SECTOR_BYTES))?;
        let failed = |error| broken(layer, error);
        add_partition(&pool, number, layer).map_err(failed)?;
        if let Err(error) = mount(&pool, number, layer) {
            let _ = fs::remove_dir(directory(layer.offset_bytes));
            let _ = delete_partition(&pool, number);
            return Err(broken(layer, error));
        }
        known.insert(layer.offset_bytes, Known { layer, number, is_leaving: false });
        Ok(())
    }

    /// Unmounts a layer that no instance has. Once this has succeeded, the guest reads nothing of its range any more.
    /// If it fails, nothing can be started on the layer, and it can be removed again.
    pub async fn remove(&self, offset_bytes: u64) -> Result<(), ApiError> {
        let pool = pool()?;
        let (number, files) = {
            let mut known = self.known.borrow_mut();
            let known = known.get_mut(&offset_bytes).ok_or_else(|| no_layer(offset_bytes))?;
            let mut files = None;
            if !known.is_leaving {
                let directory = directory(offset_bytes);
                let detached = detach(Path::new(&directory));
                files = Some(detached.map_err(|error| broken(known.layer, error.into()))?);
                known.is_leaving = true;
                let _ = fs::remove_dir(directory);
            }
            (known.number, files)
        };
        leave(files).await;
        let deleted = async {
            loop {
                match delete_partition(&pool, number) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        tokio::time::sleep(CLOSE_PAUSE).await;
                    }
                    other => return other,
                }
            }
        };
        let deleted = tokio::time::timeout(CLOSE_TIMEOUT, deleted).await.map_err(|_| {
            ApiError::new(
                ErrorCode::Unavailable,
                format!("the layer at {offset_bytes} is still open after 10 s: remove it again"),
            )
        })?;
        match deleted {
            // Another call was faster.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {}
            other => other.map_err(|error| ApiError::internal("removing a layer", error))?,
        }
        self.known.borrow_mut().remove(&offset_bytes);
        Ok(())
    }

    /// The directories of layers, in this order.
    pub fn directories(&self, offsets: &[u64]) -> Result<Vec<String>, ApiError> {
        let known = self.known.borrow();
        let directory = |&offset| match known.get(&offset) {
            Some(Known { is_leaving: false, .. }) => Ok(directory(offset)),
            _ => Err(no_layer(offset)),
        };
        offsets.iter().map(directory).collect()
    }
}

fn pool() -> Result<String, ApiError> {
    device_of(Layer::POOL_SERIAL)
        .ok_or_else(|| ApiError::invalid("layers: this VM has no drive for layers"))
}

/// Checks that a layer can be added, and finds a number for its partition.
fn place(known: &BTreeMap<u64, Known>, layer: Layer, pool_bytes: u64) -> Result<u8, ApiError> {
    layer.check(pool_bytes).map_err(|error| ApiError::invalid(error.to_string()))?;
    let offset = layer.offset_bytes;
    if known.contains_key(&offset) {
        let message = format!("there is already a layer at {offset}");
        return Err(ApiError::new(ErrorCode::Exists, message));
    }
    if let Some(other) = known.values().find(|other| other.layer.overlaps(layer)) {
        return Err(ApiError::invalid(format!(
            "the layer at {offset} overlaps the one at {}",
            other.layer.offset_bytes
        )));
    }
    let taken: BTreeSet<u8> = known.values().map(|known| known.number).collect();
    (1..=u8::MAX).find(|number| !taken.contains(number)).ok_or_else(|| {
        ApiError::new(
            ErrorCode::Unavailable,
            format!("there are already {} layers: remove some", Layer::MAX_COUNT),
        )
    })
}
const _: () = assert!(Layer::MAX_COUNT == u8::MAX as usize);

fn directory(offset_bytes: u64) -> String {
    format!("{DIRECTORY}/{offset_bytes}")
}

fn no_layer(offset_bytes: u64) -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("there is no layer at {offset_bytes}"))
}

/// The error of a layer that cannot be used as it is.
fn broken(layer: Layer, error: io::Error) -> ApiError {
    ApiError::invalid(format!("layer at {}: {error}", layer.offset_bytes))
}

fn mount(pool: &str, number: u8, layer: Layer) -> io::Result<()> {
    let target = directory(layer.offset_bytes);
    fs::create_dir_all(Path::new(&target))?;
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID;
    mount_filesystem(&format!("/dev/{pool}{number}"), "erofs", &target, flags, "")
}

/// `BLKPG` of `linux/blkpg.h`, and its operations.
const BLKPG: libc::Ioctl = 0x1269;
const ADD_PARTITION: libc::c_int = 1;
const DELETE_PARTITION: libc::c_int = 2;

/// `struct blkpg_partition`.
#[repr(C)]
struct Partition {
    start: libc::c_longlong,
    length: libc::c_longlong,
    number: libc::c_int,
    names: [u8; 128],
}

/// `struct blkpg_ioctl_arg`.
#[repr(C)]
struct Argument {
    operation: libc::c_int,
    flags: libc::c_int,
    length: libc::c_int,
    data: *mut Partition,
}

fn add_partition(drive: &str, number: u8, layer: Layer) -> io::Result<()> {
    let signed = |bytes| i64::try_from(bytes).map_err(io::Error::other);
    let (start, length) = (signed(layer.offset_bytes)?, signed(layer.length_bytes)?);
    partition(
        drive,
        ADD_PARTITION,
        Partition { start, length, number: number.into(), names: [0; 128] },
    )
}

fn delete_partition(drive: &str, number: u8) -> io::Result<()> {
    let number = number.into();
    partition(drive, DELETE_PARTITION, Partition { start: 0, length: 0, number, names: [0; 128] })
}

fn partition(drive: &str, operation: libc::c_int, mut partition: Partition) -> io::Result<()> {
    let file = File::open(format!("/dev/{drive}"))?;
    let mut argument = Argument {
        operation,
        flags: 0,
        length: size_of::<Partition>() as libc::c_int,
        data: &raw mut partition,
    };
    // SAFETY: the kernel reads both structures, which have its layout and outlive the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), BLKPG, &raw mut argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL_BYTES: u64 = 1 << 30;

    fn known(layers: &[(u64, u64)]) -> BTreeMap<u64, Known> {
        let known = |(&(offset_bytes, length_bytes), number)| {
            let layer = Layer { offset_bytes, length_bytes };
            (offset_bytes, Known { layer, number, is_leaving: false })
        };
        layers.iter().zip(1..=u8::MAX).map(known).collect()
    }

    fn placed(known: &BTreeMap<u64, Known>, offset: u64, length: u64) -> Result<u8, ErrorCode> {
        let layer = Layer { offset_bytes: offset, length_bytes: length };
        place(known, layer, POOL_BYTES).map_err(|error| error.0.code)
    }

    #[test]
    fn a_layer_gets_the_first_free_partition_and_no_others_bytes() {
        let mut known = known(&[(4096, 8192), (65536, 4096)]);
        assert_eq!(placed(&known, 12288, 4096), Ok(3));
        assert_eq!(placed(&known, 4096, 4096), Err(ErrorCode::Exists));
        assert_eq!(placed(&known, 8192, 4096), Err(ErrorCode::Invalid));
        assert_eq!(placed(&known, 0, 8192), Err(ErrorCode::Invalid));
        assert_eq!(placed(&known, 100, 4096), Err(ErrorCode::Invalid));
        assert_eq!(placed(&known, POOL_BYTES, 4096), Err(ErrorCode::Invalid));
        known.remove(&4096);
        assert_eq!(placed(&known, 4096, 8192), Ok(1));
    }

    #[test]
    fn there_are_as_many_layers_as_partitions_of_a_drive() {
        let all: Vec<_> = (0..Layer::MAX_COUNT as u64).map(|at| (at * 4096, 4096)).collect();
        let known = known(&all);
        assert_eq!(placed(&known, POOL_BYTES - 4096, 4096), Err(ErrorCode::Unavailable));
    }

    #[test]
    fn nothing_starts_on_a_layer_that_is_leaving() {
        let layers = Layers { known: RefCell::new(known(&[(4096, 4096), (8192, 4096)])) };
        assert_eq!(
            layers.directories(&[8192, 4096]).unwrap(),
            ["/run/squeezy/layers/8192", "/run/squeezy/layers/4096"]
        );
        layers.known.borrow_mut().get_mut(&4096).unwrap().is_leaving = true;
        let error = layers.directories(&[8192, 4096]).unwrap_err();
        assert_eq!(
            (error.0.code, error.0.message.as_str()),
            (ErrorCode::NotFound, "there is no layer at 4096")
        );
    }
}
