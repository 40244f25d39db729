//! The parts that the URLs of databases share.

use super::{Encryption, Table};
use crate::values::{Handshake, LockError, config};

/// The number of connections for requests, unless the URL says otherwise.
const POOL: usize = 8;
/// The numbers of connections that a URL may ask for. With fewer, acquires would keep releases waiting.
const POOLS: std::ops::RangeInclusive<usize> = 2..=100;

/// The settings of locks that a URL's parameters contain.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) table: Table,
    /// The largest number of connections for requests.
    pub(crate) pool: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            table: Table::default(),
            pool: POOL,
        }
    }
}

impl Settings {
    /// Reads one parameter, `name=value`. Returns `false` if it is none of these.
    pub(crate) fn take(&mut self, pair: &str) -> Result<bool, LockError> {
        match pair.split_once('=') {
            Some(("lock_table", value)) => self.table = Table::parse(value)?,
            Some(("lock_pool", value)) => {
                let count = value.parse().ok().filter(|count| POOLS.contains(count));
                self.pool = count.ok_or_else(|| {
                    config("`lock_pool` is a number of connections from 2 to 100")
                })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Splits a URL into the part before its parameters, and its parameters. In the first part, the login is
/// percent-encoded where it has to be, so that the driver that reads it sees the same login.
///
/// A password may contain a `/`, `?`, `#` or `@` as it is. A parameter may contain an `@`.
///
/// # Errors
/// [`LockError::InvalidConfig`] if an `@` may be a part of a parameter or the end of a password: as a password, it would
/// hide the parameters before it.
pub(crate) fn split(url: &str) -> Result<(String, &str), LockError> {
    let scheme = url.find("://").map_or(0, |end| end + 3);
    let login = login(&url[scheme..])?;
    let begin = scheme + login.len();
    let end = url[begin..]
        .find('?')
        .map_or(url.len(), |mark| begin + mark);
    let query = url.get(end + 1..).unwrap_or_default();
    let login = login.strip_suffix('@').map(encoded);
    let login = login.map_or(String::new(), |login| login + "@");
    Ok(([&url[..scheme], &login, &url[begin..end]].concat(), query))
}

/// Returns the login at the beginning of `rest`, with its `@`, or an empty text if there is none. It ends at the last
/// `@` that no `/` or `?` separates from the first one.
fn login(rest: &str) -> Result<&str, LockError> {
    let Some(first) = rest.find('@') else {
        return Ok("");
    };
    let may_be_parameters = rest[..first]
        .split_once('?')
        .is_some_and(|(_, query)| query.contains('='));
    if may_be_parameters {
        return Err(config(
            "the URL cannot be read: an `@` after a `?` may be a part of a parameter or the end of a password; \
             percent-encode the `@` of a parameter as `%40`, and the `?` of a password as `%3F`",
        ));
    }
    let hosts = rest[first..].find(['/', '?']);
    let end = hosts.map_or(rest.len(), |hosts| first + hosts);
    let last = rest[..end].rfind('@').unwrap_or(first);
    Ok(&rest[..=last])
}

/// Percent-encodes what would end a login.
fn encoded(login: &str) -> String {
    let login = login.replace('/', "%2F").replace('?', "%3F");
    login.replace('#', "%23").replace('@', "%40")
}

/// Returns the place, which `split` has returned, once for each of its hosts, with this host alone. A URL lists its
/// hosts before the path.
pub(crate) fn one_by_one(place: &str) -> Vec<String> {
    let scheme = place.find("://").map_or(0, |end| end + 3);
    let begin = place.find('@').map_or(scheme, |at| at + 1);
    let end = place[begin..]
        .find('/')
        .map_or(place.len(), |slash| begin + slash);
    let hosts = place[begin..end].split(',');
    let alone = |host| [&place[..begin], host, &place[end..]].concat();
    hosts.map(alone).collect()
}

/// Refuses certificates and credentials that do not fit a URL.
pub(crate) fn check(
    handshake: &Handshake,
    has_password: bool,
    encryption: Encryption,
) -> Result<(), LockError> {
    if handshake.credentials.is_some() && has_password {
        return Err(config(
            "there are `credentials`, and a password in the URL: leave one of them out",
        ));
    }
    if handshake.certificates.are_given() && encryption == Encryption::Off {
        return Err(config(
            "there are certificates, and a URL without TLS: it should say `sslmode=verify-full`",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_at_sign_in_a_parameter_hides_no_parameter_and_a_password_may_be_unencoded() {
        for (url, place, query) in [
            ("a://u:p@h/d?x=1&y=a@b", "a://u:p@h/d", "x=1&y=a@b"),
            ("a://u:p@h?x=1&y=a@b", "a://u:p@h", "x=1&y=a@b"),
            ("a://@h/d?x=a@b", "a://@h/d", "x=a@b"),
            ("a://u:p@h/d@e?x=1", "a://u:p@h/d@e", "x=1"),
            ("a://u:p?q@h/d?x=1&y=a@b", "a://u:p%3Fq@h/d", "x=1&y=a@b"),
            ("a://u:p@q@h/d?x=1", "a://u:p%40q@h/d", "x=1"),
            ("a://u:p/q#r=@h,i/d", "a://u:p%2Fq%23r=@h,i/d", ""),
            ("a://u:%40@h/d", "a://u:%40@h/d", ""),
            ("a://h/d?x=1", "a://h/d", "x=1"),
            ("a://h", "a://h", ""),
        ] {
            let (found, rest) = split(url).unwrap();
            assert_eq!((found.as_str(), rest), (place, query), "{url}");
        }
    }

    #[test]
    fn an_at_sign_that_ends_a_parameter_or_a_password_is_refused_with_both_ways_to_write_it() {
        for url in [
            "a://h/d?sslmode=require&y=hunter2@b",
            "a://h:1?sslmode=require&y=hunter2@b",
            "a://u:hunter2?x=1@h/d?sslmode=require",
        ] {
            let said = split(url).unwrap_err().to_string();
            assert!(said.contains("`%40`") && said.contains("`%3F`"), "{said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}
