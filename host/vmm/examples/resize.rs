//! Starts a VM, plugs and unplugs memory, and prints how long each took: the quickest check that a
//! kernel, an initramfs and this crate work together.
//!
//! `cargo run -p squeezy-vmm --example resize -- MECHANISM [KERNEL [ARGUMENT OF THE KERNEL]...]`
//!
//! The guest's console is written to the file named by $CONSOLE_LOG.

use squeezy_vmm::{
    Artifacts, MemoryBackendChoice, Vm, VmConfig, VmError,
    mechanism::{MechanismName, Sizing},
};

#[tokio::main]
async fn main() -> std::process::ExitCode {
    match run().await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("resize: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), VmError> {
    let mut arguments = std::env::args().skip(1);
    let name: MechanismName = arguments.next().as_deref().unwrap_or("squeezy").parse()?;
    let sizing = Sizing { instance_bytes: 256 << 20, instances: 4, shared_bytes: 64 << 20 };
    let Some(mechanism) = name.mechanism(sizing) else {
        return Err(VmError::Config(format!("{name} does not use a VM")));
    };
    let files = Artifacts::find(None)?;
    let mut config: VmConfig = mechanism.configure(VmConfig::new(
        "resize",
        files.kernel(mechanism.kernel()),
        files.initramfs(),
    ));
    config.memory_backend = MemoryBackendChoice::Auto.resolve(name);
    if let Some(kernel) = arguments.next() {
        config.kernel = kernel.into();
    }
    config.command_line.extend(arguments);
    config.console_log = std::env::var_os("CONSOLE_LOG").map(Into::into);
    config.vcpus = 2;
    config.count_device_requests = true;
    let vm = Vm::start_with(config, |step| println!("{step:?}")).await?;
    println!("{} {:?}", vm.vmm_version(), vm.agent()?.info().await?);
    println!("{:?}", vm.memory().await?);
    let mut slots = Vec::new();
    for _ in 0..sizing.instances {
        let slot = mechanism.slots().take()?;
        println!("plug {:?}", mechanism.plug(&vm, slot).await?);
        slots.push(slot);
    }
    println!("{:?}", vm.memory().await?);
    let start = std::time::Instant::now();
    vm.memory().await?;
    println!("measuring it took {:?}", start.elapsed());
    for slot in slots {
        mechanism.slots().free(slot)?;
        println!("reclaim {:?}", mechanism.reclaim(&vm, slot).await?);
    }
    println!("{:?}", vm.memory().await?);
    println!("{:?}", vm.cpu_times()?);
    vm.stop().await
}
