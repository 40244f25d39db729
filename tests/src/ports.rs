//! Free loopback ports.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// They are below the ephemeral ranges of Linux and macOS, so that no outgoing connection takes one while its server is
/// down between a kill and a restart.
const FIRST: u16 = 10_000;
const MANY: u16 = 22_000;

/// Returns a loopback port that nobody listens on at this moment.
///
/// This process does not get it a second time, so no other test starts a server there while the one that has it is down.
/// Another process may still be faster, so a test that starts a server here has to cope with a lost race.
pub fn free_port() -> u16 {
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| fastrand::u16(..MANY).into());
    for _ in 0..1_000 {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % MANY;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port on the loopback interface among 1,000");
}
