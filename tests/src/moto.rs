//! A server that imitates S3: moto.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::launch::{Kind, Server, directory_in};

/// The login of requests. moto verifies no signature, but it lets nobody read objects without one.
const LOGIN: &str = "AWS4-HMAC-SHA256 Credential=test/20261101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";

/// The kind of a [`MotoServer`].
#[derive(Debug)]
pub struct Moto;

/// moto's server with a port of its own. It ends with this value, also on panic.
pub type MotoServer = Server<Moto>;

impl Kind for Moto {
    const NAME: &'static str = "imitation of S3";
    const MISSING: &'static str = "install moto (`pip install 'moto[s3,server]'`, or let ./scripts/test-s3 do it), or \
        name its program in MOTO_SERVER_BIN";

    fn command(server: &MotoServer) -> Command {
        let program = std::env::var("MOTO_SERVER_BIN").unwrap_or("moto_server".to_owned());
        let mut command = Command::new(program);
        command
            .args(["-H", "127.0.0.1", "-p", &server.port().to_string()])
            .current_dir(server.dir());
        command
    }

    fn answers(server: &MotoServer) -> bool {
        TcpStream::connect(server.addr()).is_ok()
    }
}

/// The server's answer.
#[derive(Debug)]
pub struct S3Answer {
    /// The status code, such as 412.
    pub status: u16,
    head: String,
    /// The object, or an error in XML.
    pub body: String,
}

impl S3Answer {
    /// Returns the `ETag`, with its quotes.
    #[must_use]
    pub fn etag(&self) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("etag").then(|| value.trim())
        })
    }
}

impl MotoServer {
    /// Starts a server.
    #[must_use]
    pub fn start() -> Self {
        Self::launch(Moto, directory_in(&std::env::temp_dir()))
    }

    /// Sends a request: `head` is its first line and its headers.
    ///
    /// # Panics
    ///
    /// If there is no answer.
    #[must_use]
    pub fn send(&self, head: &str, body: &str) -> S3Answer {
        let mut connection = TcpStream::connect(self.addr()).expect("connect");
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
