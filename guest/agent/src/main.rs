//! Init of a Squeezy VM. The library's documentation says how it works.

use squeezy_agent::{
    console, init, instance::Instances, port::Port, profile::Profiler, sandbox, server,
};
use std::{process::ExitCode, rc::Rc};
use tokio::task::LocalSet;

fn main() -> ExitCode {
    let mode = std::env::args_os().nth(1).unwrap_or_default();
    if mode == sandbox::ARGUMENT {
        return sandbox::main();
    }
    if mode == sandbox::init::ARGUMENT {
        return sandbox::init::main();
    }
    if mode == sandbox::init::APART_ARGUMENT {
        return sandbox::init::main_apart();
    }
    if std::process::id() != 1 {
        console!("this is the init of a Squeezy VM and only runs as process 1");
        return ExitCode::from(2);
    }
    // A task that panics must take the VM down: an agent with only half its tasks would leave the host
    // waiting.
    std::panic::set_hook(Box::new(|what| init::end(format_args!("{what}"))));
    let Err(error) = init::set_up().and_then(|()| serve());
    init::end(format_args!("{error}"))
}

fn serve() -> std::io::Result<std::convert::Infallible> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let state = Rc::new(server::State {
            instances: Instances::start()?,
            profiler: Profiler::default(),
            on_shutdown: init::power_off,
        });
        let port = Port::open().await?;
        console!("ready");
        loop {
            let connection = port.connection().await?;
            if let Err(error) = server::serve(connection, Rc::clone(&state)).await {
                console!("the host's connection ended: {error:?}");
            }
        }
    })
}
