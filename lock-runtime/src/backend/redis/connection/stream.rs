//! The stream of bytes to one server: a socket, and TLS on it.
//!
//! The client could open it as well. But it takes rustls's provider of cryptography from the process, and installs one
//! there if the program has not, which is the program's choice. It also reads no certificates anew, and does not report
//! which step it waits for.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use redis::ConnectionAddr;
use redis::aio::AsyncStream;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::DialOptions;
use super::refused::{DialAttempt, DialStep};
use crate::backend::Fault;

/// Bytes to and from a server, over any kind of socket.
pub(super) type Stream = Pin<Box<dyn AsyncStream + Send>>;

/// Connects to the attempt's server, at this address of its name if there is one. TLS still verifies the name.
pub(super) async fn open(
    at: Option<IpAddr>,
    #[cfg_attr(
        not(feature = "tls-rustls"),
        allow(unused_variables, reason = "only TLS has options")
    )]
    options: &DialOptions,
    attempt: DialAttempt<'_>,
) -> Result<Stream, Fault> {
    match attempt.server.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let connecting = tcp(host, *port, at);
            let socket = attempt.step(DialStep::Connect, connecting).await?;
            Ok(Box::pin(socket))
        }
        #[cfg(feature = "tls-rustls")]
        ConnectionAddr::TcpTls { host, port, .. } => {
            let connecting = tcp(host, *port, at);
            let socket = attempt.step(DialStep::Connect, connecting).await?;
            encrypted(socket, host, options, attempt).await
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let connecting = tokio::net::UnixStream::connect(path);
            let socket = attempt.step(DialStep::Connect, connecting).await?;
            Ok(Box::pin(socket))
        }
        _ => Err(Fault::impossible(
            "the server's address is of no known sort",
        )),
    }
}

async fn tcp(host: &str, port: u16, at: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = match at {
        Some(address) => TcpStream::connect((address, port)).await?,
        None => TcpStream::connect((host, port)).await?,
    };
    configure(&socket)?;
    Ok(socket)
}

/// Turns off Nagle's algorithm, because scripts are small and a caller waits for each. Makes the kernel notice a silent
/// peer, too.
fn configure(socket: &TcpStream) -> io::Result<()> {
    const IDLE: Duration = Duration::from_secs(10);
    const INTERVAL: Duration = Duration::from_secs(5);
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(IDLE).with_interval(INTERVAL))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(Duration::from_secs(10)))?;
    Ok(())
}

#[cfg(feature = "tls-rustls")]
async fn encrypted(
    socket: TcpStream,
    host: &str,
    options: &DialOptions,
    attempt: DialAttempt<'_>,
) -> Result<Stream, Fault> {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;
    use tokio_rustls::TlsConnector;

    use crate::backend::kit::certificates;

    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| Fault::impossible("a certificate cannot contain the host's name"))?;
    let tls = certificates::client(&options.handshake.certificates);
    let connector = TlsConnector::from(Arc::new(tls.map_err(certificates::unusable)?));
    let shaking = connector.connect(name, socket);
    Ok(Box::pin(attempt.step(DialStep::Tls, shaking).await?))
}
