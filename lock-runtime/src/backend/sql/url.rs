//! The target that the URL of a database names.

use std::fmt;
use std::sync::Arc;

use super::{Encryption, Table};
use crate::backend::kit::hosts::{Host, Hosts};
use crate::backend::kit::url_options::UrlOptions;
use crate::values::{Certificates, Credentials, Handshake, LockError, Login, config};

/// The number of connections for requests, unless the URL says otherwise.
const POOL: usize = 8;
/// The numbers of connections that a URL may ask for. With fewer, acquires would keep releases waiting.
const POOLS: std::ops::RangeInclusive<usize> = 2..=100;

/// The options that name a file of certificates to other programs.
const FOR_THE_BUILDER: &str = "sslrootcert sslcert sslkey ssl-ca ssl-cert ssl-key";

/// The target that a URL names: a server, perhaps with several hosts, each as settings of its driver, and the settings
/// of the locks there.
#[derive(Clone)]
pub(crate) struct SqlTarget<H> {
    pub(crate) hosts: Hosts<H>,
    pub(crate) table: Table,
    /// The number of connections that requests may use.
    pub(crate) pool: usize,
    /// True if releases notify waiters. Otherwise waiters ask again and again.
    pub(crate) notify: bool,
    pub(crate) encryption: Encryption,
    pub(crate) certificates: Certificates,
    /// The source of logins, in place of the URL.
    pub(crate) credentials: Option<Arc<dyn Credentials>>,
    /// Its name for errors and logs, without user and password.
    pub(crate) shown: String,
}

/// The settings of a driver for one host.
pub(crate) trait HostSettings: Host {
    /// The settings by which a connection uses TLS, or does not.
    type Tls: Clone;

    /// Returns `host:port`, or the path of a socket.
    fn shown(&self) -> String;

    fn database(&self) -> Option<&str>;

    fn has_password(&self) -> bool;

    /// Returns the settings with another login.
    fn with_login(self, login: &Login) -> Self;

    /// Returns `true` if the client begins at any of the hosts, by chance. Otherwise it begins at the one that served last.
    fn begins_at_any(&self) -> bool {
        false
    }

    /// Returns the settings of TLS, with the certificates as they are now.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] if the certificates cannot be used, or if they name no authority to trust.
    fn tls(encryption: Encryption, certificates: &Certificates) -> Result<Self::Tls, LockError>;
}

impl<H: HostSettings> SqlTarget<H> {
    /// The hosts `each` are tried in their order.
    pub(crate) fn new(each: Vec<H>, settings: Settings) -> SqlTarget<H> {
        let mut all: Vec<String> = each.iter().map(HostSettings::shown).collect();
        all.dedup();
        let database = each
            .first()
            .and_then(HostSettings::database)
            .unwrap_or_default();
        let shown = format!("{}/{database}", all.join(","));
        SqlTarget {
            hosts: Hosts::new(each),
            table: settings.table,
            pool: settings.pool,
            notify: false,
            encryption: settings.encryption,
            certificates: Certificates::default(),
            credentials: None,
            shown,
        }
    }

    /// Adds the certificates and credentials that the builder was given.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] if they do not fit the URL.
    pub(crate) fn with(mut self, handshake: &Handshake) -> Result<SqlTarget<H>, LockError> {
        if handshake.credentials.is_some()
            && self.hosts.each().iter().any(HostSettings::has_password)
        {
            return Err(config(
                "there are `credentials`, and a password in the URL: leave one of them out",
            ));
        }
        if handshake.certificates.are_given() && self.encryption == Encryption::Off {
            return Err(config(
                "there are certificates, and a URL without TLS: it should say `sslmode=verify-full`",
            ));
        }
        self.certificates.clone_from(&handshake.certificates);
        // Certificates that cannot be used are refused before any I/O with a server.
        H::tls(self.encryption, &self.certificates)?;
        self.credentials.clone_from(&handshake.credentials);
        Ok(self)
    }
}

impl<H> fmt::Debug for SqlTarget<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlTarget")
            .field("server", &self.shown)
            .field("table", &self.table.name())
            .finish_non_exhaustive()
    }
}

/// The settings of locks, and of TLS, that a URL's options contain.
pub(crate) struct Settings {
    table: Table,
    pool: usize,
    pub(crate) encryption: Encryption,
}

impl Settings {
    /// Takes the options that all databases have. `words` returns a mode of TLS in the words of libpq.
    pub(crate) fn take(
        options: &mut UrlOptions<'_>,
        modes: &[&str],
        words: impl Fn(&str) -> String,
    ) -> Result<Settings, LockError> {
        let table = options.take("lock_table");
        let pool = options.take("lock_pool").map(|value| {
            let count = value.parse().ok().filter(|count| POOLS.contains(count));
            count.ok_or_else(|| config("`lock_pool` is a number of connections from 2 to 100"))
        });
        let mut encryption = None;
        for name in modes {
            if let Some(mode) = options.take(name) {
                let said = Encryption::parse(name, &words(&mode))?;
                if encryption.replace(said).is_some_and(|other| other != said) {
                    let names = modes.join("` and `");
                    return Err(config(format!("`{names}` differ: leave one of them out")));
                }
            }
        }
        for name in FOR_THE_BUILDER.split_whitespace() {
            if options.has(name) {
                return Err(config(format!(
                    "`{name}` is no part of the URL here: the builder has `root_certificate` and `client_certificate`"
                )));
            }
        }
        Ok(Settings {
            table: Table::parse(table.as_deref().unwrap_or(Table::NAME))?,
            pool: pool.unwrap_or(Ok(POOL))?,
            encryption: encryption.unwrap_or(Encryption::Off),
        })
    }
}

/// Returns the error of a URL that cannot be read.
pub(crate) fn unreadable(database: &str, scheme: &str) -> LockError {
    config(format!(
        "the {database} URL cannot be read: it is {scheme}://user:password@host:port/database; in the user and the \
         password, `%`, `@`, `:`, `/`, `?` and `#` are percent-encoded"
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_at_sign_in_a_parameter_or_password_hides_no_parameter() {
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
    fn an_ambiguous_at_sign_is_refused_with_both_ways_to_write_it() {
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
