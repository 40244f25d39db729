//! Free loopback ports.

use std::net::{Ipv4Addr, TcpListener};

/// Returns a loopback port that nobody listens on at this moment.
///
/// It is drawn from below the ephemeral ranges of Linux and macOS, so that no outgoing connection takes it while a
/// server is down between a kill and a restart. Another process may still be faster, so a test that starts a server
/// here has to cope with a lost race.
pub fn free_port() -> u16 {
    for _ in 0..1_000 {
        let port = fastrand::u16(10_000..32_000);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port on the loopback interface in 1,000 draws");
}
