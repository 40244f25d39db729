//! `redis-sentinel://[user:password@]host[:port],…/service[/database][?sentinel_user=…&sentinel_pass=…&sentinel_tls=…]`.

use redis::{ConnectionInfo, RedisConnectionInfo};
use tokio::sync::{Mutex, watch};

use super::Sentinels;
use crate::backend::redis::connection::url::{UrlParts, as_spoken, server_at};
use crate::values::{LockError, config};

const PORT: u16 = 26_379;
const EXAMPLE: &str = "redis-sentinel://user:password@host1:26379,host2:26379/service/0";

/// Parses the text after `redis-sentinel://` or `rediss-sentinel://`. The errors repeat no part that may be secret.
pub(crate) fn parse(rest: &str, tls: bool) -> Result<Sentinels, LockError> {
    let mut parts = UrlParts::read(rest, PORT, EXAMPLE)?;
    let path = parts.path.unwrap_or_default();
    let path = path.strip_suffix('/').unwrap_or(path);
    let (service, db) = path.split_once('/').unwrap_or((path, "0"));
    if service.is_empty() {
        return Err(config(
            "the URL names no service; it should end like `/service` or `/service/0`",
        ));
    }
    // These characters can be in a name in a sentinel's configuration.
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if !service.chars().all(plain) {
        return Err(config(
            "a Sentinel service's name has letters, digits, `.`, `-` and `_` only",
        ));
    }
    let server = parts.server(db)?;
    let user = parts.options.take("sentinel_user");
    let password = parts.options.take("sentinel_pass");
    let own_tls = parts.options.take_switch("sentinel_tls")?.unwrap_or(tls);
    parts.options.finish()?;
    if user.is_some() && password.is_none() {
        return Err(config("`sentinel_user` needs `sentinel_pass`"));
    }
    if own_tls && !cfg!(feature = "tls-rustls") {
        return Err(config(
            "`sentinel_tls=on` needs the cargo feature `tls-rustls` of `lock-runtime`",
        ));
    }
    let mut own = RedisConnectionInfo::default();
    if let Some(user) = user {
        own = own.set_username(&*user);
    }
    if let Some(password) = password {
        own = own.set_password(&*password);
    }
    let own = as_spoken(own)?;
    let mut hosts: Vec<ConnectionInfo> = Vec::new();
    for (host, port) in parts.hosts {
        let address = server_at(host, port, own_tls);
        if hosts.iter().any(|known| *known.addr() == address) {
            return Err(config("the URL names a sentinel twice"));
        }
        let info = server.clone().set_addr(address);
        hosts.push(info.set_redis_settings(own.clone()));
    }
    Ok(Sentinels {
        hosts,
        service: service.to_owned(),
        server,
        tls,
        own_tls,
        known: watch::Sender::new(None),
        asked: Mutex::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rest: &str) -> Sentinels {
        parse(rest, false).unwrap_or_else(|error| panic!("{rest}: {error}"))
    }

    #[test]
    fn hosts_service_database_and_both_logins_are_read() {
        let url = "me:p%40ss@one:7000,two,[::1]:9/my-master.1/3?sentinel_user=s&sentinel_pass=q%26";
        let sentinels = read(url);
        let hosts = sentinels.hosts.iter().map(|info| info.addr().to_string());
        let hosts: Vec<_> = hosts.collect();
        assert_eq!(hosts, ["one:7000", "two:26379", "::1:9"]);
        assert_eq!(sentinels.service, "my-master.1");
        let login = sentinels.server.redis_settings();
        assert_eq!(login.db(), 3);
        assert_eq!(login.username(), Some("me"));
        assert_eq!(login.password(), Some("p@ss"));
        let sentinel = sentinels.hosts[1].redis_settings();
        assert_eq!(sentinel.username(), Some("s"));
        assert_eq!(sentinel.password(), Some("q&"));
    }

    #[cfg(feature = "tls-rustls")]
    #[test]
    fn sentinels_speak_tls_as_their_servers_unless_the_url_differs() {
        for (query, by_tls, own) in [
            ("", true, true),
            ("", false, false),
            ("?sentinel_tls=off", true, false),
            ("?sentinel_tls=on", false, true),
        ] {
            let sentinels = parse(&format!("one/service{query}"), by_tls).unwrap();
            assert_eq!((sentinels.tls, sentinels.own_tls), (by_tls, own), "{query}");
            let address = sentinels.hosts[0].addr();
            assert_eq!(*address, server_at("one".to_owned(), PORT, own), "{query}");
        }
    }

    #[test]
    fn a_login_of_the_master_is_not_shown_to_the_sentinels() {
        let sentinels = read(":secret@one/service");
        let login = sentinels.server.redis_settings();
        assert_eq!(login.password(), Some("secret"));
        assert_eq!(login.db(), 0);
        assert_eq!(sentinels.hosts[0].redis_settings().password(), None);
        assert_eq!(read("one/service/").service, "service");
    }

    #[test]
    fn malformed_urls_are_refused_without_their_secrets() {
        for bad in [
            "",
            "one",
            "one/",
            "/service",
            "one,/service",
            "one,one/service",
            "one:x/service",
            "one:99999/service",
            "one/ser vice",
            "one/service/x",
            "one/service/-1",
            "one/service/1/2",
            "one/service?db=1",
            "one/service?sentinel_user=hunter2",
            "one/service?sentinel_tls=hunter2",
            "one/service?hunter2=1",
            "me:hunter2@/service",
            "me:hunter2@one,two",
            "me:hunter2@one/service/x",
            "one/service#hunter2",
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
