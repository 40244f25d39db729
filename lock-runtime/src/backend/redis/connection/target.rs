//! From a URL to the server to connect to. All errors in a URL are found here, before any I/O.

use std::fmt;
use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use super::dial_options::DialOptions;
use super::url::{self, NO_FRAGMENT};
use crate::backend::kit::hosts::Address;
use crate::backend::kit::url_options::UrlOptions;
use crate::backend::redis::cluster::{self, Members, Seeds};
use crate::backend::redis::sentinel::{self, Sentinels};
use crate::values::{LockError, config};

/// Whether this system has unix sockets that the client can open.
const HAS_SOCKETS: bool = cfg!(unix);

fn schemes(has_sockets: bool) -> String {
    let sockets = if has_sockets {
        "`redis+unix://` (or `unix://`), "
    } else {
        ""
    };
    format!(
        "`redis://`, `rediss://`, {sockets}`redis-sentinel://`, `rediss-sentinel://`, `redis-cluster://`, \
         `rediss-cluster://`, `postgres://`, `mysql://` and `memory://`"
    )
}

/// A server that a URL names. `Debug` and [`shown`](Target::shown) leave out user and password.
#[derive(Clone)]
pub(crate) struct Target {
    topology: Topology,
    shown: String,
    dial_options: Arc<DialOptions>,
}

/// The way in which the server is found.
#[derive(Clone)]
pub(crate) enum Topology {
    Server(Box<ConnectionInfo>),
    /// A node of a cluster, which has these nodes. Such a node itself says for which keys it is the master.
    Node(Box<ConnectionInfo>, Arc<Members>),
    /// The sentinels name it, whenever a connection is opened.
    Sentinel(Arc<Sentinels>),
    /// Several servers, each with a part of the keys.
    Cluster(Arc<Seeds>),
}

impl Target {
    /// Parses a URL. The errors never repeat it: it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Target, LockError> {
        Target::parse_where(HAS_SOCKETS, url)
    }

    fn parse_where(has_sockets: bool, url: &str) -> Result<Target, LockError> {
        let schemes = schemes(has_sockets);
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(config(format!(
                "the URL does not begin with a scheme and `://`; there are {schemes}"
            )));
        };
        let scheme = scheme.to_ascii_lowercase();
        if matches!(scheme.as_str(), "redis+unix" | "unix") && !has_sockets {
            return Err(config(format!(
                "`{scheme}://` names a unix socket, which the Redis client cannot open on this system: name the server \
                 by `{}`",
                example(false)
            )));
        }
        if !schemes.contains(&format!("`{scheme}://`")) {
            return Err(config(format!(
                "an unknown URL scheme; there are {schemes}"
            )));
        }
        Target::of_scheme(&scheme, url, rest)
            .map_err(|refused| url::unescaped(rest).unwrap_or(refused))
    }

    /// Parses a URL of a known scheme.
    fn of_scheme(scheme: &str, url: &str, rest: &str) -> Result<Target, LockError> {
        let tls = scheme.starts_with("rediss");
        if tls && !cfg!(feature = "tls-rustls") {
            return Err(config(format!(
                "`{scheme}://` needs the cargo feature `tls-rustls` of `lock-runtime`"
            )));
        }
        match scheme {
            "redis" | "rediss" | "redis+unix" | "unix" => {}
            "redis-sentinel" | "rediss-sentinel" => {
                return Target::behind_sentinels(rest, scheme, tls);
            }
            "redis-cluster" | "rediss-cluster" => return Target::of_cluster(rest, scheme, tls),
            _ => return Err(config(format!("`{scheme}://` names no Redis server"))),
        }
        let unix = matches!(scheme, "redis+unix" | "unix");
        // The client's parser knows no TLS, which `stream.rs` does here.
        let plain = format!("redis://{rest}");
        let parsed = redis::parse_redis_url(if tls { &plain } else { url });
        let parsed = parsed.ok_or_else(|| url::malformed(example(unix)))?;
        if parsed.fragment().is_some() {
            return Err(config(NO_FRAGMENT));
        }
        let mut options = UrlOptions::new(parsed.query_pairs().collect());
        if unix {
            // The client's parser reads these options.
            for name in ["db", "user", "pass"] {
                options.take(name);
            }
        }
        let protocol = options.take("protocol");
        options.finish()?;
        if protocol.is_some_and(|protocol| !matches!(&*protocol, "3" | "resp3")) {
            return Err(config(
                "only RESP3 is spoken: leave `protocol` out of the URL",
            ));
        }
        let info = parsed.into_connection_info().map_err(|error| {
            // The client's own messages hold no part of the URL.
            config(format!(
                "{error}; a URL should look like `{}`",
                example(unix)
            ))
        })?;
        let info = match info.addr().clone() {
            ConnectionAddr::Tcp(host, port) if tls => {
                info.set_addr(url::server_at(host, port, tls))
            }
            _ => info,
        };
        Target::new(info, scheme)
    }

    /// Returns a server that another part of the program describes. Its protocol and its settings of TCP are not taken
    /// over.
    pub(crate) fn of(info: ConnectionInfo) -> Result<Target, LockError> {
        let scheme = match info.addr() {
            ConnectionAddr::Tcp(..) => "redis",
            ConnectionAddr::Unix(_) => "unix",
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return Err(config(
                    "the connection info leaves TLS certificates unverified; they are always verified",
                ));
            }
            ConnectionAddr::TcpTls { .. } if cfg!(feature = "tls-rustls") => "rediss",
            ConnectionAddr::TcpTls { .. } => {
                return Err(config(
                    "a server by TLS needs the cargo feature `tls-rustls` of `lock-runtime`",
                ));
            }
            _ => {
                return Err(config("the connection info has an unknown sort of address"));
            }
        };
        Target::new(info, scheme)
    }

    /// Returns the target with these options.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] if the options do not fit the URL.
    pub(crate) fn with(mut self, options: DialOptions) -> Result<Target, LockError> {
        if options.handshake.credentials.is_some() && self.has_login() {
            return Err(config(
                "there are `credentials`, and a login in the URL: leave one of them out",
            ));
        }
        if options.has_certificates() && !self.is_tls() {
            return Err(config(
                "there are certificates, and a URL without TLS: it should begin with `rediss`",
            ));
        }
        if self.has_hidden_certificates() && !options.has_certificates() {
            return Err(config(
                "the client has certificates of its own, which cannot be taken from it: give them to \
                 `root_certificate` and `client_certificate`",
            ));
        }
        // Without the feature, no URL speaks TLS.
        #[cfg(feature = "tls-rustls")]
        if self.is_tls() {
            crate::backend::kit::certificates::client(&options.handshake.certificates)?;
        }
        self.dial_options = Arc::new(options);
        Ok(self)
    }

    fn new(info: ConnectionInfo, scheme: &str) -> Result<Target, LockError> {
        let redis = url::as_spoken(info.redis_settings().clone())?;
        let db = info.redis_settings().db();
        let shown = match info.addr() {
            ConnectionAddr::Unix(path) => format!("{scheme}://{}?db={db}", path.display()),
            address => format!("{scheme}://{address}/{db}"),
        };
        let info = info.set_redis_settings(redis);
        let topology = Topology::Server(Box::new(info));
        Ok(Target::at(topology, shown))
    }

    fn behind_sentinels(rest: &str, scheme: &str, tls: bool) -> Result<Target, LockError> {
        let sentinels = sentinel::parse(rest, tls)?;
        let hosts = sentinels.hosts.iter().map(|info| info.addr().to_string());
        let hosts: Vec<_> = hosts.collect();
        let shown = format!(
            "{scheme}://{}/{}/{}",
            hosts.join(","),
            sentinels.service,
            sentinels.server.redis_settings().db()
        );
        let topology = Topology::Sentinel(Arc::new(sentinels));
        Ok(Target::at(topology, shown))
    }

    fn of_cluster(rest: &str, scheme: &str, tls: bool) -> Result<Target, LockError> {
        let seeds = cluster::parse(rest, tls)?;
        let shown = format!("{scheme}://{}", seeds.hosts.join(","));
        let topology = Topology::Cluster(Arc::new(seeds));
        Ok(Target::at(topology, shown))
    }

    fn at(topology: Topology, shown: String) -> Target {
        Target {
            topology,
            shown,
            dial_options: Arc::default(),
        }
    }

    /// Returns one node of a cluster.
    pub(crate) fn node(
        info: ConnectionInfo,
        address: &str,
        tls: bool,
        dial_options: Arc<DialOptions>,
        members: Arc<Members>,
    ) -> Target {
        let scheme = if tls { "rediss" } else { "redis" };
        Target {
            topology: Topology::Node(Box::new(info), members),
            shown: format!("{scheme}://{address}"),
            dial_options,
        }
    }

    pub(crate) fn seeds(&self) -> Option<&Arc<Seeds>> {
        match &self.topology {
            Topology::Cluster(seeds) => Some(seeds),
            _ => None,
        }
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    pub(crate) fn dial_options(&self) -> &Arc<DialOptions> {
        &self.dial_options
    }

    fn has_login(&self) -> bool {
        let server: &ConnectionInfo = match &self.topology {
            Topology::Server(info) | Topology::Node(info, _) => info,
            Topology::Sentinel(sentinels) => &sentinels.server,
            Topology::Cluster(seeds) => &seeds.server,
        };
        let login = server.redis_settings();
        login.username().is_some() || login.password().is_some()
    }

    /// Returns `true` if the server is described by a client of the `redis` crate that has certificates, which cannot
    /// be taken from it.
    fn has_hidden_certificates(&self) -> bool {
        let Topology::Server(info) = &self.topology else {
            return false;
        };
        let address = info.addr();
        matches!(address, ConnectionAddr::TcpTls { tls_params, .. } if tls_params.is_some())
    }

    /// Resolves when the sentinels name another master than this one.
    pub(crate) async fn superseded(&self, master: &Option<Address>) {
        match (&self.topology, master) {
            (Topology::Sentinel(sentinels), Some(master)) => sentinels.superseded(master).await,
            _ => std::future::pending().await,
        }
    }

    pub(crate) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match &self.topology {
            Topology::Sentinel(sentinels) => Some(sentinels),
            _ => None,
        }
    }

    /// Returns the address without user and password.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Returns `true` for a single server, wherever its address leads.
    pub(crate) fn is_one_server(&self) -> bool {
        matches!(self.topology, Topology::Server(_))
    }

    /// Returns `true` if both are in one server: two databases of one server fail together.
    pub(crate) fn is_of_one_server_with(&self, other: &Target) -> bool {
        let (Topology::Server(one), Topology::Server(other)) = (&self.topology, &other.topology)
        else {
            return false;
        };
        match (one.addr(), other.addr()) {
            (ConnectionAddr::Unix(one), ConnectionAddr::Unix(other)) => one == other,
            (one, other) => one.to_string().eq_ignore_ascii_case(&other.to_string()),
        }
    }

    /// Returns `true` if any of its connections uses TLS.
    pub(crate) fn is_tls(&self) -> bool {
        match &self.topology {
            Topology::Server(info) | Topology::Node(info, _) => {
                matches!(info.addr(), ConnectionAddr::TcpTls { .. })
            }
            Topology::Sentinel(sentinels) => sentinels.tls || sentinels.own_tls,
            Topology::Cluster(seeds) => seeds.tls,
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.shown).finish()
    }
}

fn example(unix: bool) -> &'static str {
    if unix {
        "redis+unix:///run/redis.sock?db=0&user=name&pass=secret"
    } else {
        "redis://user:password@host:6379/0"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        Target::parse(url).unwrap().shown().to_owned()
    }

    fn refusal(url: &str) -> String {
        match Target::parse(url) {
            Err(error @ LockError::InvalidConfig { .. }) => error.to_string(),
            other => panic!("{url}: {other:?}"),
        }
    }

    #[test]
    fn hosts_ports_databases_and_sockets_are_read() {
        assert_eq!(shown("redis://127.0.0.1/"), "redis://127.0.0.1:6379/0");
        assert_eq!(shown("redis://host:7000/3"), "redis://host:7000/3");
        assert_eq!(shown("redis://[::1]:7000"), "redis://::1:7000/0");
        assert_eq!(
            shown("unix:///run/redis.sock?db=2"),
            "unix:///run/redis.sock?db=2"
        );
        assert_eq!(
            shown("redis+unix:///run/redis.sock"),
            "redis+unix:///run/redis.sock?db=0"
        );
        let target = Target::parse("redis://me:p%40ss@host/1").unwrap();
        let Topology::Server(info) = target.topology() else {
            panic!()
        };
        let settings = info.redis_settings();
        assert_eq!(settings.username(), Some("me"));
        assert_eq!(settings.password(), Some("p@ss"));
        assert_eq!(settings.db(), 1);
    }

    #[test]
    fn sentinels_and_their_service_are_shown_without_logins() {
        let url = "redis-sentinel://me:hunter2@a,b:7/mine/2?sentinel_pass=hunter2";
        let target = Target::parse(url).unwrap();
        assert_eq!(target.shown(), "redis-sentinel://a:26379,b:7/mine/2");
        assert!(!format!("{target:?}").contains("hunter2"));
    }

    #[test]
    fn passwords_are_neither_shown_nor_debugged_nor_in_errors() {
        let target = Target::parse("redis://me:hunter2@host/1").unwrap();
        assert!(!format!("{target:?} {}", target.shown()).contains("hunter2"));
        let target = Target::parse("unix:///s?user=me&pass=hunter2").unwrap();
        assert!(!format!("{target:?} {}", target.shown()).contains("hunter2"));
        for bad in [
            "redis://me:hunter2@host/x",
            "redis://me:hunter2@host:99999/",
            "redis://me:hunter2@host/?hunter2=1",
            "rediss://me:hunter2@host/#insecure",
            "hunter2://host",
            "hunter2",
        ] {
            assert!(!refusal(bad).contains("hunter2"), "{bad}");
        }
    }

    #[test]
    fn malformed_urls_are_refused() {
        for bad in [
            "",
            "localhost:6379",
            "redis://",
            "redis://host:port",
            "redis://host/-1",
            "redis://host/1/2",
            "redis://0.0.0.0/",
            "redis://host/?db=1",
            "redis://host/?protocol=resp2",
            "unix://relative",
            "http://host/",
        ] {
            refusal(bad);
        }
    }

    #[test]
    fn a_system_without_unix_sockets_proposes_none() {
        for url in ["unix:///run/redis.sock", "redis+unix:///s?pass=hunter2"] {
            let refused = Target::parse_where(false, url).unwrap_err().to_string();
            assert!(refused.contains("redis://user:password@host"), "{refused}");
            assert!(!refused.contains("unix:///"), "{refused}");
            assert!(!refused.contains("hunter2"), "{refused}");
        }
        for url in ["http://host/", "host"] {
            let refused = Target::parse_where(false, url).unwrap_err().to_string();
            assert!(!refused.contains("unix"), "{refused}");
            let refused = Target::parse_where(true, url).unwrap_err().to_string();
            assert!(refused.contains("`unix://`"), "{refused}");
        }
        assert!(Target::parse_where(false, "redis://host/").is_ok());
    }

    #[test]
    fn a_cluster_is_shown_without_its_login() {
        let target = Target::parse("redis-cluster://me:hunter2@a,b:7").unwrap();
        assert_eq!(target.shown(), "redis-cluster://a:6379,b:7");
        assert!(target.seeds().is_some() && !format!("{target:?}").contains("hunter2"));
    }

    #[cfg(not(feature = "tls-rustls"))]
    #[test]
    fn tls_names_the_feature_that_it_needs() {
        assert!(refusal("rediss://host/").contains("tls-rustls"));
    }

    #[cfg(feature = "tls-rustls")]
    #[test]
    fn certificates_are_always_verified() {
        assert!(Target::parse("rediss://host/").unwrap().is_tls());
        assert!(refusal("rediss://host/#insecure").contains("verified"));
    }
}
