//! QEMU's command line.

use super::options::QemuOptions;
use crate::{
    accelerator::AcceleratorKind,
    config::{GuestClock, Llfree, VmConfig},
    memory::Layout,
};
use squeezy_protocol::{
    ImageNumber, Layer,
    network::{GATEWAY, NETWORK, NETWORK_PREFIX, Network, RESOLVER},
};
use std::{ffi::OsString, os::fd::RawFd, path::Path, process::Command};

/// The id of the port for the agent's channel, as it appears in events.
pub(super) const CHANNEL_ID: &str = "agent";
/// The id of the memory backend that the guest boots with.
const BASE_ID: &str = "base";
/// The slot of the root bus that holds the first eight images; further images go into the slots
/// below it.
const IMAGE_SLOT: u8 = 0x1e;

/// The slot of the root bus that holds the devices of the first eight networks; further ones go into the slots above it,
/// up to 0x13. Regions of memory have the slots from 4 on: there are so many of them only where there are no networks.
const NETWORK_SLOT: u8 = 0x10;

/// The id of the virtio-mem device with this number.
pub(super) fn device_id(number: u16) -> String {
    format!("vmem{number}")
}

/// The number of the virtio-mem device with this id.
pub(super) fn device_number(id: &str) -> Option<u16> {
    id.strip_prefix("vmem")?.parse().ok()
}

/// Files that QEMU inherits, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Inherited {
    /// A connected socket for the monitor.
    pub(super) monitor: RawFd,
    /// A connected socket for the agent's channel.
    pub(super) channel: RawFd,
    /// The base memory, and the region of each virtio-mem device; none if memory is private.
    pub(super) memory: Vec<RawFd>,
    /// The tap device that the guest's network device leads to, if it leads to one.
    pub(super) tap: Option<RawFd>,
    /// The drive for layers, if there is one.
    pub(super) pool: Option<RawFd>,
    /// The tap devices of networks.
    pub(super) taps: Vec<RawFd>,
}

/// The command that starts QEMU.
pub(super) fn command(
    options: &QemuOptions,
    config: &VmConfig,
    accelerator: AcceleratorKind,
    inherited: &Inherited,
) -> Command {
    let Inherited { monitor, channel, memory: files, tap, pool, taps } = inherited;
    let mut command = Command::new(&options.program);
    let mut add = |option: &str, value: String| {
        command.arg(option).arg(value);
    };
    let layout = config.layout();
    let boot_bytes = layout.boot_bytes;
    let max_bytes = boot_bytes + layout.region_bytes();

    add("-name", format!("{},debug-threads=on", config.name));
    let memory = if layout.nodes { String::new() } else { format!(",memory-backend={BASE_ID}") };
    add("-machine", format!("q35,vmport=off,smbus=off,sata=off,usb=off,i8042=off{memory}"));
    match accelerator {
        AcceleratorKind::Kvm => {
            add("-accel", "kvm".to_owned());
            add("-cpu", "host,migratable=off".to_owned());
        }
        AcceleratorKind::Tcg => {
            match config.clock {
                GuestClock::Time => add("-accel", "tcg,thread=multi".to_owned()),
                GuestClock::Instructions => {
                    add("-accel", "tcg,thread=single".to_owned());
                    add("-icount", "shift=0".to_owned());
                }
            }
            // TCG executes `rep stosb` byte by byte. Without these two features Linux clears and
            // copies memory word by word, several times faster; see docs/adr/0007.
            add("-cpu", "max,-erms,-fsrm".to_owned());
        }
    }
    if layout.regions.is_empty() {
        add("-m", format!("size={boot_bytes}B"));
    } else {
        add("-m", format!("size={boot_bytes}B,maxmem={max_bytes}B,slots=0"));
    }
    add("-object", backend(files.first(), BASE_ID, boot_bytes));
    let shares_state = accelerator == AcceleratorKind::Tcg && config.llfree != Llfree::Off;
    processors(config.vcpus, &layout, shares_state, &mut add);
    for (number, region) in (0u16..).zip(&layout.regions) {
        let id = device_id(number);
        let file = files.get(1 + usize::from(number));
        add("-object", backend(file, &format!("{id}-backend"), region.region_bytes));
        let node = if layout.nodes { format!(",node={}", number + 1) } else { String::new() };
        // Hundreds of devices would not fit in the slots of the root bus, so each slot holds eight
        // functions.
        let address = format!("addr={:#x}.{:#x},multifunction=on", 4 + number / 8, number % 8);
        add(
            "-device",
            format!(
                "virtio-mem-pci,id={id},memdev={id}-backend,requested-size={}{node},{address}",
                region.initial_bytes
            ),
        );
    }
    if layout.balloon || config.free_page_reporting {
        let reporting = if config.free_page_reporting { "on" } else { "off" };
        add(
            "-device",
            format!("virtio-balloon-pci,id=balloon,addr=0x3,free-page-reporting={reporting}"),
        );
    }

    add("-chardev", format!("socket,id=monitor,fd={monitor}"));
    add("-mon", "chardev=monitor,mode=control".to_owned());
    add("-chardev", "stdio,id=console,signal=off".to_owned());
    add("-serial", "chardev:console".to_owned());
    add("-device", "virtio-serial-pci,id=serial,max_ports=2,addr=0x1".to_owned());
    add("-chardev", format!("socket,id=channel,fd={channel}"));
    let port = squeezy_protocol::PORT_NAME;
    add(
        "-device",
        format!("virtserialport,bus=serial.0,nr=1,id={CHANNEL_ID},name={port},chardev=channel"),
    );
    // Without it, the guest's random number generator has to wait for interrupts.
    add("-object", "rng-builtin,id=rng".to_owned());
    add("-device", "virtio-rng-pci,rng=rng,addr=0x2.0x0,multifunction=on".to_owned());
    if config.network.is_some() {
        let netdev = match tap {
            Some(tap) => netdev("network", *tap),
            // Nothing of IPv6: the judge knows only IPv4.
            None => format!(
                "user,id=network,ipv4=on,ipv6=off,net={NETWORK}/{NETWORK_PREFIX},host={GATEWAY},dns={RESOLVER}"
            ),
        };
        add("-netdev", netdev);
        // Without a ROM to boot from: this kernel comes from the command line.
        add("-device", "virtio-net-pci,netdev=network,romfile=,addr=0x2.0x1".to_owned());
    }
    for (number, tap) in (0..).zip(taps) {
        let id = format!("network-{number}");
        add("-netdev", netdev(&id, *tap));
        let (slot, function) = (NETWORK_SLOT + number / 8, number % 8);
        let mac = Network::device_address(number);
        // The guest's kernel does not know the older interface, and would boot longer beside it.
        let options = format!("romfile=,disable-legacy=on,addr={slot:#x}.{function:#x}");
        add("-device", format!("virtio-net-pci,netdev={id},mac={mac},{options},multifunction=on"));
    }

    if config.count_device_requests {
        add("-trace", "virtio_mem_plug_request".to_owned());
        add("-trace", "virtio_mem_unplug_request".to_owned());
        add("-trace", "virtio_mem_send_response".to_owned());
        add("-msg", "timestamp=on".to_owned());
    }
    add(
        "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny".to_owned(),
    );
    add("-display", "none".to_owned());
    add("-append", config.kernel_command_line());
    // QEMU starts with the machine stopped: see `set_up`.
    command.args(["-no-user-config", "-nodefaults", "-no-reboot", "-S"]);
    command.arg("-kernel").arg(&config.kernel).arg("-initrd").arg(&config.initramfs);
    for (number, image) in (0..).map(ImageNumber).zip(&config.images) {
        let serial = number.serial();
        let (slot, function) = (IMAGE_SLOT - number.0 / 8, number.0 % 8);
        let address = format!("addr={slot:#x}.{function:#x},multifunction=on");
        command.arg("-blockdev").arg(blockdev(&serial, image));
        command.arg("-device");
        command.arg(format!("virtio-blk-pci,drive={serial},serial={serial},{address}"));
    }
    if let Some(file) = pool {
        let serial = Layer::POOL_SERIAL;
        let file = format!("/proc/self/fd/{file}");
        command.arg("-blockdev").arg(blockdev(serial, Path::new(&file)));
        command.arg("-device");
        command.arg(format!("virtio-blk-pci,drive={serial},serial={serial},addr=0x2.0x2"));
    }
    command.args(&options.arguments);
    command
}

fn processors(vcpus: u32, layout: &Layout, shares_state: bool, add: &mut impl FnMut(&str, String)) {
    if !layout.nodes {
        // Where there can only be one processor, TCG executes the guest's atomic instructions in
        // several steps, between which the host may change what they work on.
        let most = if shares_state { vcpus.max(2) } else { vcpus };
        return add("-smp", format!("cpus={vcpus},maxcpus={most},sockets=1"));
    }
    let nodes = layout.regions.len() as u32;
    // Linux learns of a node only from the tables that list processors and memory at boot, and
    // these nodes have neither yet. So each gets a hot-pluggable processor that is never plugged.
    let most = vcpus + nodes;
    add("-smp", format!("cpus={vcpus},maxcpus={most},sockets={most},cores=1,threads=1"));
    add("-numa", format!("node,nodeid=0,memdev={BASE_ID}"));
    for node in 1..=nodes {
        add("-numa", format!("node,nodeid={node}"));
    }
    for socket in 0..most {
        let node = (socket + 1).saturating_sub(vcpus);
        add("-numa", format!("cpu,node-id={node},socket-id={socket},core-id=0,thread-id=0"));
    }
}

/// A network device's other end, which is a tap device.
fn netdev(id: &str, tap: RawFd) -> String {
    // Without the host's kernel, which would access the guest's memory by itself.
    format!("tap,id={id},fd={tap},vhost=off")
}

fn backend(file: Option<&RawFd>, id: &str, bytes: u64) -> String {
    let kind = match file {
        None => "memory-backend-ram,share=off".to_owned(),
        // Huge pages need addresses that are aligned to them.
        Some(file) => {
            format!("memory-backend-file,mem-path=/proc/self/fd/{file},share=on,align=2M")
        }
    };
    format!("{kind},id={id},size={bytes}B,prealloc=off,reserve=off,merge=off,dump=off")
}

/// As JSON, because a path may contain any character.
fn blockdev(name: &str, image: &Path) -> OsString {
    let path = image.to_string_lossy();
    serde_json::json!({
        "driver": "raw",
        "node-name": name,
        "read-only": true,
        "file": { "driver": "file", "filename": path, "read-only": true },
    })
    .to_string()
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        memory::{Nodes, PartitionLayout},
        network::{Network, Uplink},
    };
    use std::sync::Arc;

    fn words(config: &VmConfig) -> String {
        words_with(config, None)
    }

    fn words_with(config: &VmConfig, tap: Option<RawFd>) -> String {
        let options =
            QemuOptions { program: "q".into(), arguments: vec!["-last".into(), "word".into()] };
        let pool = config.pool.is_some().then_some(9);
        let taps = (20..).take(config.taps.len()).collect();
        let inherited = Inherited { monitor: 5, channel: 6, memory: vec![7, 8], tap, pool, taps };
        let command = command(&options, config, AcceleratorKind::Tcg, &inherited);
        assert_eq!(command.get_program(), "q");
        command
            .get_args()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn partitions_are_one_device_with_the_shared_one_plugged() {
        let mut config = VmConfig::new("t", "k", "i");
        config.memory = Arc::new(PartitionLayout::new(768 << 20, 2, 64 << 20));
        let words = words(&config);
        assert!(words.contains("id=vmem0,memdev=vmem0-backend,requested-size=67108864"), "{words}");
        assert!(words.contains("size=268435456B,maxmem=2013265920B"), "{words}");
        assert!(words.contains(
            "squeezy.partition_size=786432K squeezy.partitions=2 squeezy.shared_size=65536K"
        ));
        assert!(words.contains("file,mem-path=/proc/self/fd/7,share=on,align=2M,id=base"));
        assert!(words.contains("file,mem-path=/proc/self/fd/8,share=on,align=2M,id=vmem0-backend"));
        assert!(!words.contains("vmem1") && !words.contains("balloon"));
        assert!(words.contains("-smp cpus=1,maxcpus=1,"));
        config.llfree = Llfree::Partitions;
        assert!(self::words(&config).contains("-smp cpus=1,maxcpus=2,"));
        assert!(words.ends_with(" -last word"), "{words}");
    }

    #[test]
    fn a_network_is_there_only_if_asked_for() {
        let mut config = VmConfig::new("t", "k", "i");
        assert!(!words(&config).contains("net"), "{}", words(&config));
        config.network = Some(Uplink::Judged(Network::default()));
        let words = words(&config);
        assert!(words.contains("-netdev user,id=network,ipv4=on,ipv6=off,net=198.18.0.0/16,"));
        assert!(words.contains("virtio-net-pci,netdev=network,romfile=,addr=0x2.0x1"), "{words}");
    }

    #[test]
    fn a_tap_device_is_all_that_a_network_leads_to() {
        let mut config = VmConfig::new("t", "k", "i");
        config.network = Some(Uplink::Tap("tap0".parse().unwrap()));
        let words = words_with(&config, Some(9));
        assert!(words.contains("-netdev tap,id=network,fd=9,vhost=off "), "{words}");
        assert!(words.contains("virtio-net-pci,netdev=network,") && !words.contains("user,"));
    }

    #[test]
    fn each_network_has_a_device_of_its_own() {
        let mut config = VmConfig::new("t", "k", "i");
        let null = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
        config.taps = vec![null; 10];
        let words = words(&config);
        assert!(words.contains("-netdev tap,id=network-0,fd=20,vhost=off "), "{words}");
        assert!(words.contains("netdev=network-9,mac=02:73:71:7a:00:09,"), "{words}");
        assert!(words.contains("addr=0x11.0x1,multifunction=on"), "{words}");
    }

    #[test]
    fn a_clock_that_counts_instructions_has_processors_take_turns() {
        let mut config = VmConfig::new("t", "k", "i");
        assert!(words(&config).contains("-accel tcg,thread=multi "));
        config.clock = GuestClock::Instructions;
        assert!(words(&config).contains("-accel tcg,thread=single -icount shift=0 "));
    }

    #[test]
    fn each_image_is_a_drive_of_its_number() {
        let mut config = VmConfig::new("t", "k", "i");
        config.images = (0..10).map(|number| format!("{number}.erofs").into()).collect();
        let words = words(&config);
        assert!(words.contains("drive=image-0,serial=image-0,addr=0x1e.0x0,"), "{words}");
        assert!(words.contains("drive=image-9,serial=image-9,addr=0x1d.0x1,"), "{words}");
        assert!(words.contains("\"filename\":\"9.erofs\""), "{words}");
    }

    #[test]
    fn the_drive_for_layers_is_a_file_without_a_name() {
        let mut config = VmConfig::new("t", "k", "i");
        assert!(!words(&config).contains("pool"), "{}", words(&config));
        config.pool = Some(Arc::new(std::fs::File::open("/dev/null").unwrap()));
        let words = words(&config);
        assert!(words.contains("\"filename\":\"/proc/self/fd/9\",\"read-only\":true"), "{words}");
        assert!(words.contains("virtio-blk-pci,drive=pool,serial=pool,addr=0x2.0x2"), "{words}");
    }

    #[test]
    fn each_node_has_a_device_and_a_processor_that_never_comes() {
        let mut config = VmConfig::new("t", "k", "i");
        config.vcpus = 2;
        config.memory = Arc::new(Nodes { node_bytes: 512 << 20, nodes: 2 });
        let words = words(&config);
        assert!(words.contains("node,nodeid=2 "), "{words}");
        assert!(words.contains("cpus=2,maxcpus=4"), "{words}");
        assert!(words.contains("cpu,node-id=0,socket-id=1,"), "{words}");
        assert!(words.contains("cpu,node-id=2,socket-id=3,"), "{words}");
        assert!(words.contains("id=vmem1,") && words.contains("node=2"), "{words}");
    }
}
