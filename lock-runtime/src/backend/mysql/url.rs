//! The target that a `mysql://` URL names: a server, and the settings of the locks there.

use std::net::IpAddr;
use std::time::Duration;

use mysql_async::{Opts, OptsBuilder, SslOpts};

use super::tls;
use crate::backend::kit::hosts::Host;
use crate::backend::kit::url_options::UrlOptions;
use crate::backend::sql::Encryption;
use crate::backend::sql::url::{self, HostSettings, Settings, one_by_one, split};
use crate::values::{Certificates, LockError, Login, config};

/// The time for which a connection may be silent before it is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// The target that a URL names.
pub(crate) type MysqlTarget = url::SqlTarget<Opts>;

impl MysqlTarget {
    /// Reads a URL of either scheme. The errors never repeat it: it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<MysqlTarget, LockError> {
        let (place, query) = split(url)?;
        let mut options = UrlOptions::as_written(query);
        let settings = Settings::take(&mut options, &["sslmode", "ssl-mode"], plain)?;
        let socket = options.take("socket").map(String::from);
        options.finish()?;
        if let Some(path) = &socket {
            if !path.starts_with('/') {
                return Err(config("`socket` is the absolute path of a Unix socket"));
            }
            if settings.encryption != Encryption::Off {
                return Err(config(
                    "a unix socket has no TLS: leave out `sslmode`, or name a host",
                ));
            }
        }
        let (_, rest) = place.split_once("://").ok_or_else(unreadable)?;
        let mut hosts = Vec::new();
        for place in one_by_one(&format!("mysql://{rest}")) {
            let opts = Opts::from_url(&place).map_err(|_| unreadable())?;
            if opts.ip_or_hostname().is_empty() {
                return Err(config("the MySQL URL names no host"));
            }
            let host = opts.ip_or_hostname().trim_matches(['[', ']']).to_owned();
            let opts = OptsBuilder::from_opts(opts)
                .ip_or_hostname(host)
                .socket(socket.clone())
                // A loopback address may be that of a proxy.
                .prefer_socket(false)
                // Only rows that were changed count as affected.
                .client_found_rows(false)
                .stmt_cache_size(0)
                .tcp_keepalive(Some(KEEPALIVE))
                .tcp_nodelay(true);
            hosts.push(Opts::from(opts));
        }
        let target = MysqlTarget::new(hosts, settings);
        if let Some(database) = target.database() {
            let quoted = format!("`{}`", database.replace('`', "``"));
            target.table.found_in(&quoted);
        }
        Ok(target)
    }

    /// Returns the database that the URL names, if it names one.
    pub(super) fn database(&self) -> Option<&str> {
        self.hosts.each().first()?.database()
    }

    /// Returns advice for a user that is refused.
    pub(super) fn login_advice(&self) -> Option<&'static str> {
        match (self.encryption, self.certificates.client.is_some()) {
            (Encryption::Off, _) => Some("a user with `REQUIRE SSL` needs `sslmode=verify-full`"),
            (_, false) => {
                Some("a user with `REQUIRE X509` needs the builder's `client_certificate`")
            }
            (_, true) => None,
        }
    }
}

impl Host for Opts {
    fn name(&self) -> Option<(&str, u16)> {
        let name = self.ip_or_hostname();
        let is_name = self.socket().is_none() && name.parse::<IpAddr>().is_err();
        let is_open = self.resolved_ips().is_none();
        (is_name && is_open).then(|| (name, self.tcp_port()))
    }

    fn address(&self) -> Option<IpAddr> {
        self.resolved_ips().as_ref()?.first().copied()
    }

    fn at(&self, address: IpAddr, _: bool) -> Opts {
        let one = OptsBuilder::from_opts(self.clone());
        one.resolved_ips(Some(vec![address])).into()
    }
}

/// Returns the settings by TLS, if connections use it.
pub(super) fn by_tls(opts: Opts, tls: Option<SslOpts>) -> Opts {
    let Some(tls) = tls else { return opts };
    OptsBuilder::from_opts(opts)
        .ssl_opts(tls)
        // Servers ask for tokens, such as those of Amazon RDS, by this plugin. The server has been verified by then.
        .enable_cleartext_plugin(true)
        .into()
}

impl HostSettings for Opts {
    type Tls = Option<SslOpts>;

    fn shown(&self) -> String {
        match self.socket() {
            Some(path) => path.to_owned(),
            None => format!("{}:{}", self.ip_or_hostname(), self.tcp_port()),
        }
    }

    fn database(&self) -> Option<&str> {
        self.db_name().filter(|name| !name.is_empty())
    }

    fn has_password(&self) -> bool {
        self.pass().is_some()
    }

    fn with_login(self, login: &Login) -> Opts {
        let opts = OptsBuilder::from_opts(self).pass(Some(login.password.clone()));
        match &login.user {
            Some(user) => opts.user(Some(user.clone())),
            None => opts,
        }
        .into()
    }

    fn tls(encryption: Encryption, certificates: &Certificates) -> Result<Self::Tls, LockError> {
        tls::options(encryption, certificates)
    }
}

/// Returns a mode of MySQL's programs in the words of libpq.
fn plain(mode: &str) -> String {
    let mode = mode.to_ascii_lowercase().replace('_', "-");
    match &*mode {
        "disabled" => "disable".to_owned(),
        "preferred" => "prefer".to_owned(),
        "required" => "require".to_owned(),
        "verify-identity" => "verify-full".to_owned(),
        _ => mode,
    }
}

fn unreadable() -> LockError {
    url::unreadable("MySQL", "mysql")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_server_table_and_pool_and_shows_no_password() {
        let url = "mysql://app:hunter2@db.example:3307/orders?lock_table=app.locks&lock_pool=3";
        let target = MysqlTarget::parse(url).unwrap();
        assert_eq!(target.shown, "db.example:3307/orders");
        assert_eq!((target.table.name(), target.pool), ("app.locks", 3));
        assert!(!format!("{target:?}").contains("hunter2"));
        let other = MysqlTarget::parse("MariaDB://u@h/x?socket=/run/my.sock").unwrap();
        assert_eq!((&*other.shown, other.pool), ("/run/my.sock/x", 8));
        assert_eq!(other.table.whole(), "`x`.lock_leases");
        let opts = &target.hosts.each()[0];
        assert!(!opts.client_found_rows() && !opts.prefer_socket());
        let several = MysqlTarget::parse("mysql://u:hunter2@a,b:1,[::1]:2/db?lock_pool=3").unwrap();
        assert_eq!(several.shown, "a:3306,b:1,::1:2/db");
        assert_eq!(several.database(), Some("db"));
    }

    #[test]
    fn a_bad_url_is_refused_with_a_reason_and_no_password() {
        for (url, names) in [
            ("mysql://u:hunter2@h/db?lock_table=a;b", "lock_table"),
            ("mysql://u:hunter2@h/db?lock_pool=1", "lock_pool"),
            ("mysql://u:hunter2@h/db?look_table=a", "`look_table`"),
            ("mysql://u:hunter2@h/db?require_ssl=true", "`sslmode`"),
            ("mysql://u:hunter2@h/db?ssl-mode=PREFERRED", "`verify-full`"),
            (
                "mysql://u:hunter2@h/db?ssl-ca=/ca.pem",
                "`root_certificate`",
            ),
            ("mysql://u:hunter2@h/db?socket=x", "absolute"),
            ("mysql://u:hunter2@h:port/db", "percent-encoded"),
            ("mysql://u:a?hunter2@h/db?lock_pool=x", "lock_pool"),
        ] {
            let error = MysqlTarget::parse(url).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(names), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[cfg(feature = "tls-rustls")]
    #[test]
    fn both_vocabularies_ask_for_tls() {
        for mode in [
            "sslmode=verify-full",
            "sslmode=require",
            "ssl-mode=VERIFY_IDENTITY",
            "ssl-mode=REQUIRED",
        ] {
            let target = MysqlTarget::parse(&format!("mysql://u@h/db?{mode}")).unwrap();
            assert_eq!(target.encryption, Encryption::Verified, "{mode}");
        }
        let plain = MysqlTarget::parse("mysql://u@h/db?ssl-mode=DISABLED").unwrap();
        assert_eq!(plain.encryption, Encryption::Off);
    }

    #[cfg(feature = "tls-rustls")]
    #[test]
    fn options_that_differ_about_tls_are_refused_by_their_names() {
        let target = |modes: &str| MysqlTarget::parse(&format!("mysql://u:hunter2@h/db?{modes}"));
        for modes in [
            "sslmode=verify-full&ssl-mode=DISABLED",
            "ssl-mode=REQUIRED&sslmode=disable",
        ] {
            let said = target(modes).unwrap_err().to_string();
            let names = said.contains("`sslmode`") && said.contains("`ssl-mode`");
            assert!(names && !said.contains("hunter2"), "{said}");
        }
        let same = target("sslmode=verify-full&ssl-mode=VERIFY_IDENTITY").unwrap();
        assert_eq!(same.encryption, Encryption::Verified);
    }

    #[cfg(not(feature = "tls-rustls"))]
    #[test]
    fn tls_names_the_feature_that_it_needs() {
        let refused = MysqlTarget::parse("mysql://u:hunter2@h/db?ssl-mode=REQUIRED").map(drop);
        let said = refused.unwrap_err().to_string();
        assert!(
            said.contains("`tls-rustls`") && !said.contains("hunter2"),
            "{said}"
        );
    }
}
