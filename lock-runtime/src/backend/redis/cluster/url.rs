//! `redis-cluster://[user:password@]host[:port],…`.

use redis::ConnectionInfo;

use crate::backend::kit::hosts::Address;
use crate::backend::redis::connection::url::UrlParts;
pub(super) use crate::backend::redis::connection::url::{at, split};
use crate::values::{LockError, config};

const PORT: u16 = 6_379;
const EXAMPLE: &str = "redis-cluster://user:password@host1:6379,host2:6379";

/// The first nodes of a cluster, which name the others.
#[derive(Clone)]
pub(crate) struct Seeds {
    pub(in super::super) hosts: Vec<Address>,
    /// The settings of every node but its address.
    pub(in super::super) server: ConnectionInfo,
    pub(in super::super) tls: bool,
}

/// Parses the text after `redis-cluster://` or `rediss-cluster://`. The errors repeat no part that may be secret.
pub(in super::super) fn parse(rest: &str, tls: bool) -> Result<Seeds, LockError> {
    let parts = UrlParts::read(rest, PORT, EXAMPLE)?;
    if !matches!(parts.path, None | Some("" | "0" | "0/")) {
        return Err(config(
            "a cluster has only database 0: leave the database out of the URL",
        ));
    }
    // A login for each host would be read as a part of the first host's password.
    if parts.login.is_some_and(|login| login.contains('@')) {
        return Err(config(
            "one login is for all nodes: write it before the first host, and an `@` in it as `%40`",
        ));
    }
    let server = parts.server("")?;
    parts.options.finish()?;
    let mut hosts: Vec<Address> = Vec::new();
    for (host, port) in parts.hosts {
        let address = address(&host, port);
        if !hosts.contains(&address) {
            hosts.push(address);
        }
    }
    Ok(Seeds { hosts, server, tls })
}

/// Returns the canonical name of a node, whatever the source of its address.
pub(super) fn address(host: &str, port: u16) -> Address {
    format!("{host}:{port}").into()
}

#[cfg(test)]
mod tests {
    use redis::ConnectionAddr;

    use super::*;

    fn read(rest: &str) -> Seeds {
        parse(rest, false).unwrap_or_else(|error| panic!("{rest}: {error}"))
    }

    #[test]
    fn hosts_and_login_are_read() {
        let seeds = read("me:p%40ss@one:7000,two,[::1]:9,one:7000");
        let hosts: Vec<&str> = seeds.hosts.iter().map(|host| &**host).collect();
        assert_eq!(hosts, ["one:7000", "two:6379", "::1:9"]);
        let info = at(&seeds.server, "::1:9", seeds.tls);
        assert_eq!(info.redis_settings().username(), Some("me"));
        assert_eq!(info.redis_settings().password(), Some("p@ss"));
        assert!(matches!(info.addr(), ConnectionAddr::Tcp(host, 9) if host == "::1"));
        assert!(read("one/0").server.redis_settings().username().is_none());
    }

    #[test]
    fn malformed_urls_are_refused_without_their_secrets() {
        for bad in [
            "",
            "one,",
            "one:x",
            "one:99999",
            "one/1",
            "one/0/1",
            "one?hunter2=1",
            "one#hunter2",
            "me:hunter2@",
            "me:hunter2@one/x",
            "me:hunter2@one,/",
            "me:hunter2@one,me:hunter2@two",
        ] {
            match parse(bad, false) {
                Err(error @ LockError::InvalidConfig { .. }) => {
                    assert!(!error.to_string().contains("hunter2"), "{bad}: {error}");
                }
                Err(error) => panic!("{bad}: {error}"),
                Ok(_) => panic!("{bad} is taken"),
            }
        }
    }
}
