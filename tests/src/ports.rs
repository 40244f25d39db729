//! Free loopback ports.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// They are below the ephemeral ranges of Linux and macOS, so that no outgoing connection takes one while its server is
/// down between a kill and a restart.
const FIRST: u16 = 10_000;
const MANY: u16 = 22_000;
/// The number of ports that a process claims at once.
const BLOCK: u16 = 50;

/// Returns a loopback port that nobody listens on at this moment.
///
/// No process of tests gets it a second time, this one included: so no other test starts a server there while the one
/// that has it starts, or is down. A program that knows nothing of the blocks may still be faster, so a test that starts
/// a server here has to cope with a lost race.
pub fn free_port() -> u16 {
    /// The claims of this process, and the ports of the last block that were not drawn yet.
    static OWN: Mutex<(Vec<TcpListener>, Range<u16>)> = Mutex::new((Vec::new(), 0..0));
    let (claims, ports) = &mut *OWN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(port) = ports.find(|port| bind(*port).is_ok()) {
            return port;
        }
        let (claim, block) = claim();
        claims.push(claim);
        *ports = block;
    }
}

/// Claims a block: the process listens on its first port until it ends. Returns the other ports.
fn claim() -> (TcpListener, Range<u16>) {
    let blocks = MANY / BLOCK;
    let start = fastrand::u16(..blocks);
    let claimed = (0..blocks).find_map(|block| {
        let first = FIRST + (start + block) % blocks * BLOCK;
        Some((bind(first).ok()?, first + 1..first + BLOCK))
    });
    claimed.expect("a block of loopback ports that no process of tests has")
}

fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}
