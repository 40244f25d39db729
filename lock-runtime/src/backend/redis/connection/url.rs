//! The parts that the URLs of all schemes share: a login, hosts, and passwords that were not encoded.

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
};

use crate::backend::kit::url_options::UrlOptions;
use crate::values::{LockError, config};

/// The reason why a `#` is refused.
pub(super) const NO_FRAGMENT: &str =
    "a URL takes no fragment; in particular, TLS certificates are always verified";

/// The options that may follow a password which is an option itself.
const OPTIONS: [&str; 7] = [
    "db",
    "user",
    "pass",
    "protocol",
    "sentinel_user",
    "sentinel_pass",
    "sentinel_tls",
];

/// The parts of a URL with several hosts: `[login@]host[:port],…[/path][?options]`.
pub(crate) struct UrlParts<'a> {
    pub(crate) login: Option<&'a str>,
    pub(crate) hosts: Vec<(String, u16)>,
    pub(crate) path: Option<&'a str>,
    pub(crate) options: UrlOptions<'static>,
    example: &'static str,
}

impl<'a> UrlParts<'a> {
    /// Parses the text after the scheme. `port` is the port of a host without one.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`], with no part of the URL: it may be secret.
    pub(crate) fn read(
        rest: &'a str,
        port: u16,
        example: &'static str,
    ) -> Result<UrlParts<'a>, LockError> {
        if rest.contains('#') {
            return Err(config(NO_FRAGMENT));
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match place.split_once('/') {
            Some((authority, path)) => (authority, Some(path)),
            None => (place, None),
        };
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let host = |text| {
            let (host, given) = host_and_port(text)?;
            Some((host, given.unwrap_or(port)))
        };
        let hosts: Option<Vec<_>> = hosts.split(',').map(host).collect();
        let url = redis::parse_redis_url(&format!("redis://host/?{query}"));
        let (Some(hosts), Some(url)) = (hosts, url) else {
            return Err(malformed(example));
        };
        let options = url.query_pairs();
        let options =
            options.map(|(name, value)| (name.into_owned().into(), value.into_owned().into()));
        Ok(UrlParts {
            login,
            hosts,
            path,
            options: UrlOptions::new(options.collect()),
            example,
        })
    }

    /// Returns the settings of every server but its address: the login, decoded, and the database.
    pub(crate) fn server(&self, database: &str) -> Result<ConnectionInfo, LockError> {
        let login = self
            .login
            .map_or(String::new(), |login| format!("{login}@"));
        let url = redis::parse_redis_url(&format!("redis://{login}host/{database}"));
        let info = url.and_then(|url| url.into_connection_info().ok());
        let info = info.ok_or_else(|| malformed(self.example))?;
        let settings = as_spoken(info.redis_settings().clone())?;
        Ok(info.set_redis_settings(settings))
    }
}

/// Returns the error of a URL that cannot be parsed.
pub(crate) fn malformed(example: &str) -> LockError {
    config(format!(
        "the URL is malformed; it should look like `{example}`"
    ))
}

/// Returns the settings with RESP3, and without a command that needs a right of its own. Refuses a database that there cannot
/// be, and a user without a password: the client would not log in, and be another user.
pub(crate) fn as_spoken(settings: RedisConnectionInfo) -> Result<RedisConnectionInfo, LockError> {
    if settings.username().is_some() && settings.password().is_none() {
        return Err(config(
            "there is a user, and no password: a password alone has a colon before it (`:password@`), and a user that needs \
             none has any text in its place",
        ));
    }
    if !(0..=i64::from(i32::MAX)).contains(&settings.db()) {
        return Err(config("the database number is negative or too large"));
    }
    Ok(settings
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name())
}

/// Returns the settings of the server at an address, which are as those of another server in all else.
pub(crate) fn at(like: &ConnectionInfo, address: &str, tls: bool) -> ConnectionInfo {
    let (host, port) = split(address).unwrap_or_default();
    like.clone().set_addr(server_at(host.to_owned(), port, tls))
}

/// Splits an address into host and port. A port of the cluster's own connections may follow.
pub(crate) fn split(address: &str) -> Option<(&str, u16)> {
    let address = address.split('@').next()?;
    let (host, port) = address.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

/// Returns the address of a server, with TLS or without.
pub(crate) fn server_at(host: String, port: u16, tls: bool) -> ConnectionAddr {
    if tls {
        ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        }
    } else {
        ConnectionAddr::Tcp(host, port)
    }
}

/// Parses host and port of one server by the client's own parser, which knows IPv6 and refuses wildcards.
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let url = redis::parse_redis_url(&format!("redis://{text}"))?;
    let port = url.port();
    let extra = !matches!(url.path(), "" | "/") || !url.username().is_empty();
    if extra || text.is_empty() {
        return None;
    }
    match url.into_connection_info().ok()?.addr() {
        ConnectionAddr::Tcp(host, _) => Some((host.clone(), port)),
        _ => None,
    }
}

/// Returns the reason why a URL was refused, if it looks as if a password in it was not encoded: a character of the
/// password ended the login. The reason repeats nothing else of the URL.
///
/// Call this only for a URL that was refused: in a well-formed URL, the same characters may be right.
pub(crate) fn unescaped(rest: &str) -> Option<LockError> {
    let is_end = |c: char| matches!(c, '/' | '?' | '#');
    let in_login = rest
        .split_once(is_end)
        .filter(|(_, after)| after.contains('@'))
        .and_then(|_| rest.chars().find(|c| is_end(*c)));
    let in_option = || {
        let (_, options) = rest.split_once('?')?;
        let (_, password) = options.split_once("pass=")?;
        let next_option = |at: usize| {
            let (name, _) = password[at + 1..].split_once('=')?;
            OPTIONS.contains(&name).then_some(())
        };
        let mut found = password.char_indices();
        let found = found.find(|(at, c)| match c {
            '&' => next_option(*at).is_none(),
            c => *c == '#',
        });
        found.map(|(_, c)| c)
    };
    let found = in_login.or_else(in_option)?;
    Some(config(format!(
        "the URL cannot be read, and a `{found}` seems to be a part of its user or password: percent-encode it there, as \
         `%{:02X}` (also `/` as `%2F`, `?` as `%3F`, `#` as `%23`, `@` as `%40`, `&` as `%26`, `%` as `%25`)",
        u32::from(found)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_ends_a_login_is_named_with_its_code() {
        for (rest, names) in [
            ("me:hunter2#x@host/", "as `%23` (also"),
            (":hunter2/x@host", "as `%2F` (also"),
            (":hunter2?x@host/0", "as `%3F` (also"),
            ("me:hunter2@x/y@host", "as `%2F` (also"),
            ("/run/redis.sock?pass=hunter2#x", "as `%23` (also"),
            ("h/service?sentinel_pass=hunter2&x", "as `%26` (also"),
        ] {
            let said = unescaped(rest).expect(rest).to_string();
            assert!(said.contains(names), "{rest}: {said}");
            assert!(!said.contains("hunter2"), "{rest}: {said}");
        }
        for rest in [
            "",
            "host/x",
            "host#x",
            "me:hunter2@host/x",
            "/run/redis.sock?user=a&db=1",
            "/run/redis.sock?pass=a&protocol=2",
            "h/service?sentinel_pass=a&sentinel_tls=yes",
        ] {
            assert!(unescaped(rest).is_none(), "{rest}");
        }
    }
}
