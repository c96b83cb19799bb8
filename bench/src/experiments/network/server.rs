//! The server that `netbench` talks to.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
};

/// Serves on all addresses of this thread's network until the process ends; returns the port.
pub(super) fn serve() -> io::Result<u16> {
    let listener = TcpListener::bind("0.0.0.0:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The client has gone, or says what is wrong.
            std::thread::spawn(|| drop(talk(stream)));
        }
    });
    Ok(port)
}

fn talk(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut block = vec![0; 64 << 10];
    let mut what = [0];
    stream.read_exact(&mut what)?;
    match &what {
        b"e" => loop {
            stream.read_exact(&mut what)?;
            stream.write_all(&what)?;
        },
        b"c" => {
            let mut count = 0_u64;
            loop {
                match stream.read(&mut block)? {
                    0 => return stream.write_all(&count.to_le_bytes()),
                    length => count += length as u64,
                }
            }
        }
        _ => loop {
            stream.write_all(&block)?;
        },
    }
}
