//! The way to the program that changes requests.

use super::{Cluster, Silence};
use futures_util::future::BoxFuture;
use squeezy_requests::{Answer, MAX_MESSAGE_BYTES, Request};
use std::{io, path::PathBuf, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    time::timeout,
};

/// How long an answer may take. The program gives up a little earlier.
const LIMIT: Duration = Duration::from_secs(5);

/// Where the program listens.
pub struct Socket(pub PathBuf);

impl Cluster for Socket {
    fn ask<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Answer, Silence>> {
        Box::pin(async move {
            let nobody = |error: io::Error| {
                Silence::NotAsked(format!("squeezy-requests does not run on its node: {error}"))
            };
            let stream = UnixStream::connect(&self.0).await.map_err(nobody)?;
            match timeout(LIMIT, exchange(stream, request)).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(error)) => Err(Silence::NoAnswer(error.to_string())),
                Err(_) => Err(Silence::NoAnswer(format!(
                    "squeezy-requests has not answered for {} s",
                    LIMIT.as_secs()
                ))),
            }
        })
    }
}

async fn exchange(mut stream: UnixStream, request: &Request) -> io::Result<Answer> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = String::new();
    BufReader::new(stream.take(MAX_MESSAGE_BYTES as u64)).read_line(&mut answer).await?;
    Ok(serde_json::from_str(&answer)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::tests::pod;
    use tokio::net::UnixListener;

    /// What comes of a request to a program that answers with this.
    async fn asked(answer: Vec<u8>) -> (String, Result<Answer, Silence>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let program = async move {
            let (stream, _) = listener.accept().await.unwrap();
            let (from, mut to) = stream.into_split();
            let mut line = String::new();
            BufReader::new(from).read_line(&mut line).await.unwrap();
            // Whoever has read enough goes.
            let _ = to.write_all(&answer).await;
            line
        };
        let request = Request { pod: pod(), occupied_bytes: None };
        let socket = Socket(path);
        tokio::join!(program, socket.ask(&request))
    }

    #[tokio::test]
    async fn a_line_goes_there_and_one_comes_back() {
        let (line, answer) = asked(b"\"done\"\n".to_vec()).await;
        assert_eq!(answer, Ok(Answer::Done));
        let request: Request = serde_json::from_str(&line).unwrap();
        assert_eq!(request, Request { pod: pod(), occupied_bytes: None });
    }

    #[tokio::test]
    async fn what_is_no_answer_is_none() {
        let long = [b"{\"refused\":{\"why\":\"".to_vec(), vec![b'x'; 1 << 20]].concat();
        for answer in [Vec::new(), b"yes\n".to_vec(), b"\xff\n".to_vec(), long] {
            let (_, answer) = asked(answer).await;
            assert!(matches!(answer, Err(Silence::NoAnswer(_))), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn without_the_program_nobody_is_asked() {
        let directory = tempfile::tempdir().unwrap();
        let socket = Socket(directory.path().join("socket"));
        let answer = socket.ask(&Request { pod: pod(), occupied_bytes: Some(1) }).await;
        assert!(matches!(answer, Err(Silence::NotAsked(_))), "{answer:?}");
    }
}
