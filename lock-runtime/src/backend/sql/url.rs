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

/// Splits a URL into the part before its parameters, and its parameters. A password may contain a `?` as it is.
pub(crate) fn split(url: &str) -> (&str, &str) {
    let login = url.rfind('@').map_or(0, |at| at + 1);
    match url[login..].find('?').map(|mark| login + mark) {
        Some(mark) => (&url[..mark], &url[mark + 1..]),
        None => (url, ""),
    }
}

/// Returns the place once for each of its hosts, with this host alone. A URL lists its hosts before the path.
pub(crate) fn one_by_one(place: &str) -> Vec<String> {
    let scheme = place.find("://").map_or(0, |end| end + 3);
    let begin = place.rfind('@').map_or(scheme, |at| at + 1);
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
