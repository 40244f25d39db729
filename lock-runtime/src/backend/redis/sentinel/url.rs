//! `redis-sentinel://[user:password@]host[:port],…/service[/database][?sentinel_user=…&sentinel_pass=…&sentinel_tls=…]`.

use redis::{ConnectionInfo, IntoConnectionInfo};

use super::Sentinels;
use crate::backend::redis::connection::url::{
    NO_FRAGMENT, as_spoken, host_and_port, login, server_at,
};
use crate::values::{LockError, config};

const PORT: u16 = 26_379;
const EXAMPLE: &str = "the URL is malformed; it should look like \
    `redis-sentinel://user:password@host1:26379,host2:26379/service/0`";

/// Parses the text after `redis-sentinel://` or `rediss-sentinel://`. The errors repeat no part that may be secret.
pub(crate) fn parse(rest: &str, tls: bool) -> Result<Sentinels, LockError> {
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let (authority, path) = rest.split_once('/').ok_or_else(|| {
        config("the URL names no service; it should end like `/service` or `/service/0`")
    })?;
    let (own_login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (Some(login), hosts),
        None => (None, authority),
    };
    let path = path.strip_suffix('/').unwrap_or(path);
    let (service, db) = path.split_once('/').unwrap_or((path, "0"));
    if service.is_empty() {
        return Err(config(
            "the URL names no service; it should end like `/service` or `/service/0`",
        ));
    }
    // These are the names that a sentinel's configuration can hold.
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if !service.chars().all(plain) || rest.contains('#') {
        return Err(config(
            "a Sentinel service's name has letters, digits, `.`, `-` and `_` only",
        ));
    }

    let options = options(query)?;
    let own_tls = options.tls.unwrap_or(tls);
    if own_tls && !cfg!(feature = "tls-rustls") {
        return Err(config(
            "`sentinel_tls=on` needs the cargo feature `tls-rustls` of `lock-runtime`",
        ));
    }
    let mut addresses: Vec<ConnectionInfo> = Vec::new();
    for host in hosts.split(',') {
        let (host, port) = host_and_port(host).ok_or_else(|| config(EXAMPLE))?;
        let address = server_at(host, port.unwrap_or(PORT), own_tls);
        if addresses.iter().any(|known| *known.addr() == address) {
            return Err(config("the URL names a sentinel twice"));
        }
        let info = address
            .into_connection_info()
            .map_err(|_| config(EXAMPLE))?;
        let mut settings = as_spoken(info.redis_settings().clone());
        if let Some(user) = &options.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &options.password {
            settings = settings.set_password(password);
        }
        addresses.push(info.set_redis_settings(settings));
    }

    let login = login(own_login, db).ok_or_else(|| config(EXAMPLE))?;
    if !(0..=i64::from(i32::MAX)).contains(&login.db()) {
        return Err(config("the database number is negative or too large"));
    }
    let service = service.to_owned();
    Ok(Sentinels::new(addresses, service, login, tls, own_tls))
}

/// The options of a URL. All of them are about the sentinels.
#[derive(Default)]
struct SentinelOptions {
    user: Option<String>,
    password: Option<String>,
    tls: Option<bool>,
}

fn options(query: Option<&str>) -> Result<SentinelOptions, LockError> {
    let mut options = SentinelOptions::default();
    let Some(query) = query else {
        return Ok(options);
    };
    let url =
        redis::parse_redis_url(&format!("redis://host/?{query}")).ok_or_else(|| config(EXAMPLE))?;
    if url.fragment().is_some() {
        return Err(config(NO_FRAGMENT));
    }
    for (option, value) in url.query_pairs() {
        match option.as_ref() {
            "sentinel_user" => options.user = Some(value.into_owned()),
            "sentinel_pass" => options.password = Some(value.into_owned()),
            "sentinel_tls" => {
                options.tls = Some(match &*value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(config("`sentinel_tls` is `on` or `off`")),
                });
            }
            _ => {
                return Err(config(
                    "the URL takes the options `sentinel_user`, `sentinel_pass` and `sentinel_tls`; it has another one",
                ));
            }
        }
    }
    if options.user.is_some() && options.password.is_none() {
        return Err(config("`sentinel_user` needs `sentinel_pass`"));
    }
    Ok(options)
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
        let hosts: Vec<_> = (0..3).map(|index| sentinels.host(index)).collect();
        assert_eq!(hosts, ["one:7000", "two:26379", "::1:9"]);
        assert_eq!(sentinels.service, "my-master.1");
        assert_eq!(sentinels.login.db(), 3);
        assert_eq!(sentinels.login.username(), Some("me"));
        assert_eq!(sentinels.login.password(), Some("p@ss"));
        let sentinel = sentinels.hosts[1].redis_settings();
        assert_eq!(sentinel.username(), Some("s"));
        assert_eq!(sentinel.password(), Some("q&"));
    }

    #[cfg(feature = "tls-rustls")]
    #[test]
    fn sentinels_speak_tls_as_their_servers_do_unless_the_url_says_otherwise() {
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
        assert_eq!(sentinels.login.password(), Some("secret"));
        assert_eq!(sentinels.login.db(), 0);
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
