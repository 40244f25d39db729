//! `redis-cluster://[user:password@]host[:port],…`.

use redis::{ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use super::super::sentinel::Address;
use crate::backend::redis::connection::url::{UrlParts, server_at};
use crate::values::{LockError, config};

const PORT: u16 = 6_379;
const EXAMPLE: &str = "redis-cluster://user:password@host1:6379,host2:6379";

/// The first nodes of a cluster, which name the others, and the login.
#[derive(Clone)]
pub(crate) struct Seeds {
    pub(in super::super) hosts: Vec<Address>,
    pub(in super::super) login: RedisConnectionInfo,
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
    let login = parts.login("")?;
    parts.options.finish()?;
    let mut hosts: Vec<Address> = Vec::new();
    for (host, port) in parts.hosts {
        let address = address(&host, port);
        if !hosts.contains(&address) {
            hosts.push(address);
        }
    }
    Ok(Seeds { hosts, login, tls })
}

/// Returns the canonical name of a node, whatever the source of its address.
pub(super) fn address(host: &str, port: u16) -> Address {
    format!("{host}:{port}").into()
}

/// Splits an address into host and port. A port of the cluster's own connections may follow.
pub(super) fn split(address: &str) -> Option<(&str, u16)> {
    let address = address.split('@').next()?;
    let (host, port) = address.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

impl Seeds {
    /// Returns the settings of a connection to the address, or `None` if the address is malformed.
    pub(super) fn info(&self, address: &str) -> Option<ConnectionInfo> {
        let (host, port) = split(address)?;
        if host.is_empty() {
            return None;
        }
        let address = server_at(host.to_owned(), port, self.tls);
        let info = address.into_connection_info().ok()?;
        Some(info.set_redis_settings(self.login.clone()))
    }
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
        assert_eq!(seeds.login.username(), Some("me"));
        assert_eq!(seeds.login.password(), Some("p@ss"));
        let info = seeds.info("::1:9").unwrap();
        assert!(matches!(info.addr(), ConnectionAddr::Tcp(host, 9) if host == "::1"));
        assert!(read("one/0").login.username().is_none());
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
