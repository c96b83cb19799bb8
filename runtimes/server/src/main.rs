//! OpenWhisk's action interface over HTTP around code that comes with the request, or is there already: `POST /init` once,
//! then `POST /run`, one at a time or several. The server of every image in `runtimes/`.
//!
//! The code runs in a process of its own, which gets each call as a line of JSON on its standard input
//! and answers with a line of JSON on descriptor 3 (OpenWhisk's actionloop protocol). So what the code
//! does to its process is an error of that call and not the end of this server. A language's runtime
//! is a launcher that loads the code and speaks this protocol; a native program speaks it itself.
//! A launcher that serves several calls at a time gets each with a number before it, and answers with
//! that number.

mod body;
mod http;
mod init;
mod line;
mod numbered;
mod one_by_one;
mod place;
mod process;
mod refused;
mod server;

use clap::Parser;
use place::Layout;
use std::{fs::File, net::Ipv4Addr, path::PathBuf, process::ExitCode, rc::Rc};
use tokio::net::TcpListener;

/// Serves POST /init, which brings code, and POST /run.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where it listens: in a pod, whose clients are outside, 0.0.0.0.
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST)]
    address: Ipv4Addr,
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Where the code is put; emptied before.
    #[arg(long, value_name = "DIRECTORY", default_value = "/tmp/action")]
    place: PathBuf,
    /// The file for code that is a text or a program.
    #[arg(long, value_name = "NAME")]
    file: String,
    /// Archives are not unpacked: they are put into the file as they are.
    #[arg(long)]
    packed: bool,
    /// The launcher serves several calls at a time: each has a number before it, and so has its answer.
    #[arg(long, requires = "launcher")]
    numbered: bool,
    /// The program that loads the code, and its arguments. The code's directory and the name of its
    /// entry point are added. Without it the file is the program.
    #[arg(last = true, value_name = "LAUNCHER")]
    launcher: Vec<String>,
}

fn main() -> ExitCode {
    let Arguments { address, port, place, file, packed, numbered, launcher } = Arguments::parse();
    // Descriptor 3 is what the processes of actions answer on. Taken here, nothing that is to be inherited
    // by them, or closed when they are executed, has that number.
    let taken = File::open("/dev/null");
    let layout = Layout { directory: place, file, packed };
    let served =
        tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|tokio| {
            tokio.block_on(tokio::task::LocalSet::new().run_until(async {
                let listener = TcpListener::bind((address, port)).await?;
                http::serve(listener, Rc::new(server::Server::new(layout, launcher, numbered)))
                    .await
            }))
        });
    drop(taken);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("squeezy-runtime: cannot serve on {address}:{port}: {error}");
            ExitCode::FAILURE
        }
    }
}
