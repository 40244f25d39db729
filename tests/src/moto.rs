//! A server that imitates S3: moto.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::ports::free_port;
use crate::running::Running;

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// moto verifies no signature, but lets nobody read objects who shows none.
const LOGIN: &str = "AWS4-HMAC-SHA256 Credential=test/20261101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";

const NO_BINARY: &str = "no moto, an imitation of S3, to test with: install it (`pip install 'moto[s3,server]'`, or let \
./scripts/test-s3 do it), or name its program in MOTO_SERVER_BIN";

/// moto's server on a port of its own; ends with this value, also on panic.
#[derive(Debug)]
pub struct MotoServer {
    port: u16,
    process: Running,
    _dir: TempDir,
}

/// What it answered.
#[derive(Debug)]
pub struct S3Answer {
    /// Such as 412.
    pub status: u16,
    head: String,
    /// The object, or an error in XML.
    pub body: String,
}

impl S3Answer {
    /// With its quotes.
    #[must_use]
    pub fn etag(&self) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("etag").then(|| value.trim())
        })
    }
}

impl MotoServer {
    /// Starts one.
    ///
    /// # Panics
    ///
    /// If there is no moto, or it does not start.
    #[must_use]
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let program = std::env::var("MOTO_SERVER_BIN").unwrap_or("moto_server".to_owned());
        let mut command = Command::new(&program);
        command
            .args(["-H", "127.0.0.1", "-p"])
            .arg(port.to_string())
            .current_dir(dir.path());
        let process = Running::start(&mut command, dir.path(), Signal::KILL)
            .unwrap_or_else(|error| panic!("{NO_BINARY} ({program}: {error})"));
        let mut server = Self {
            port,
            process,
            _dir: dir,
        };
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let ended = server.process.child.try_wait().expect("ask for its end");
            assert!(ended.is_none(), "{NO_BINARY} ({program} ended: {ended:?})");
            assert!(Instant::now() < deadline, "{program} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Sends a request: its first line and its headers, and its body.
    ///
    /// # Panics
    ///
    /// If it is not answered.
    #[must_use]
    pub fn send(&self, head: &str, body: &str) -> S3Answer {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("connect");
        let mut request = head.trim_end().replace('\n', "\r\n");
        request += &format!(
            "\r\nHost: 127.0.0.1\r\nAuthorization: {LOGIN}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(request.as_bytes()).expect("send");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
        S3Answer {
            status: status.expect("a status"),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }
}
