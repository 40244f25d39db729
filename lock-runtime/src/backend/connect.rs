//! Opens the store that a URL names. This is the only place that knows which stores this build has.

use std::sync::Arc;

use crate::backend::memory::{MemoryBackend, MemoryStore};
#[cfg(feature = "mysql")]
use crate::backend::mysql;
use crate::backend::opening::Opening;
#[cfg(feature = "postgres")]
use crate::backend::postgres;
#[cfg(feature = "redis")]
use crate::backend::redis::{DialOptions, RedisBackend, Target};
use crate::backend::{Backend, Boxed};
#[cfg(feature = "redis")]
use crate::values::clock::{self, Moment};
#[cfg(feature = "redis")]
use crate::values::error::StoreError;
use crate::values::{Handshake, LockError, config};

/// The reason why a memory store refuses credentials and certificates.
pub(crate) const NO_LOGIN: &str = "a memory store has no logins";

/// A store, named by its URL or given as an object.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    Memory(MemoryStore),
    #[cfg(feature = "redis")]
    Redis(Box<Target>),
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::PostgresTarget>),
    #[cfg(feature = "mysql")]
    Mysql(Box<mysql::MysqlTarget>),
}

impl Location {
    /// Reads a URL. The case of its scheme does not matter. The errors never repeat the URL: it may hold a password.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`].
    pub(crate) fn parse(url: &str) -> Result<Location, LockError> {
        let mut url = url.to_owned();
        if let Some(end) = url.find("://") {
            url[..end].make_ascii_lowercase();
        }
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        match scheme {
            "memory" if rest.is_empty() => Ok(Location::Memory(MemoryStore::new())),
            "memory" => Ok(Location::Memory(MemoryStore::named(rest))),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => Ok(Location::Postgres(Box::new(
                postgres::PostgresTarget::parse(&url)?,
            ))),
            #[cfg(not(feature = "postgres"))]
            "postgres" | "postgresql" => Err(needs(scheme, "feature `postgres`")),
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => Ok(Location::Mysql(Box::new(mysql::MysqlTarget::parse(&url)?))),
            #[cfg(not(feature = "mysql"))]
            "mysql" | "mariadb" => Err(needs(scheme, "feature `mysql`")),
            #[cfg(feature = "redis")]
            _ => Ok(Location::Redis(Box::new(Target::parse(&url)?))),
            #[cfg(not(feature = "redis"))]
            "redis" | "redis+unix" | "unix" | "redis-sentinel" | "redis-cluster" => {
                Err(needs(scheme, "feature `redis`"))
            }
            #[cfg(not(feature = "redis"))]
            "rediss" | "rediss-sentinel" | "rediss-cluster" => {
                Err(needs(scheme, "features `redis` and `tls-rustls`"))
            }
            #[cfg(not(feature = "redis"))]
            _ => Err(config(
                "an unknown URL scheme: `memory://` needs no cargo feature of `lock-runtime`, other stores need `redis`, \
                 `postgres` or `mysql`",
            )),
        }
    }

    /// Returns the location with the certificates and the credentials of the builder.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] if they do not fit the store.
    pub(crate) fn with(self, handshake: &Handshake) -> Result<Location, LockError> {
        match self {
            Location::Memory(_) => {
                handshake.refuse(NO_LOGIN)?;
                Ok(self)
            }
            #[cfg(feature = "postgres")]
            Location::Postgres(target) => Ok(Location::Postgres(Box::new(target.with(handshake)?))),
            #[cfg(feature = "mysql")]
            Location::Mysql(target) => Ok(Location::Mysql(Box::new(target.with(handshake)?))),
            #[cfg(feature = "redis")]
            Location::Redis(target) => {
                let target = target.with(DialOptions::new(handshake))?;
                Ok(Location::Redis(Box::new(target)))
            }
        }
    }

    /// Returns the URL as errors show it, without user and password.
    pub(crate) fn shown(&self) -> &str {
        match self {
            Location::Memory(_) => "memory",
            #[cfg(feature = "redis")]
            Location::Redis(target) => target.shown(),
            #[cfg(feature = "postgres")]
            Location::Postgres(target) => &target.shown,
            #[cfg(feature = "mysql")]
            Location::Mysql(target) => &target.shown,
        }
    }

    /// Refuses stores that cannot be nodes of a quorum.
    pub(crate) fn check_node(&self) -> Result<(), LockError> {
        match self {
            Location::Memory(_) => Ok(()),
            #[cfg(feature = "redis")]
            Location::Redis(target) if target.is_one_server() => Ok(()),
            #[cfg(feature = "redis")]
            Location::Redis(_) => Err(config("a node of a quorum is one server by itself")),
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            _ => Err(config(
                "a node of a quorum is a Redis server or a memory store: other stores do not show whether they have \
                 forgotten locks, and a vote of such a node is not safe",
            )),
        }
    }

    /// Returns `true` if both nodes of a quorum fail together, because they are in one server or store.
    pub(crate) fn is_one_with(&self, other: &Location) -> bool {
        match (self, other) {
            (Location::Memory(one), Location::Memory(other)) => one.is(other),
            #[cfg(feature = "redis")]
            (Location::Redis(one), Location::Redis(other)) => one.is_of_one_server_with(other),
            #[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
            _ => false,
        }
    }

    /// Returns the memory store, if the location is one.
    pub(crate) fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Location::Memory(store) => Some(store),
            #[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
            _ => None,
        }
    }

    /// Connects. If the options are `lazy`, only starts to connect.
    ///
    /// A store without replicas must refuse [`Options::replicas`](crate::values::Options::replicas), which it would ignore
    /// otherwise.
    ///
    /// The future is boxed for the compiler: it follows futures within futures to a certain depth, and the program has its
    /// own.
    pub(crate) fn open(
        self,
        opening: Opening,
    ) -> Boxed<'static, Result<Arc<dyn Backend>, LockError>> {
        Box::pin(self.opened(opening))
    }

    async fn opened(self, opening: Opening) -> Result<Arc<dyn Backend>, LockError> {
        let options = &opening.options;
        match self {
            Location::Memory(store) => {
                options.replicas.refuse("a memory store has none")?;
                Ok(Arc::new(MemoryBackend::new(store, opening.events)))
            }
            #[cfg(feature = "postgres")]
            Location::Postgres(target) => {
                options
                    .replicas
                    .refuse("on PostgreSQL, `synchronous_standby_names` of the server does that")?;
                Ok(postgres::connect(*target, opening).await?)
            }
            #[cfg(feature = "mysql")]
            Location::Mysql(target) => {
                options
                    .replicas
                    .refuse("on MySQL, semisynchronous replication of the server does that")?;
                Ok(mysql::connect(*target, opening).await?)
            }
            #[cfg(feature = "redis")]
            Location::Redis(target) => {
                let began = clock::now();
                let connected = RedisBackend::connect(*target, opening).await;
                let connected = connected.map(|backend| backend as _);
                connected.map_err(|error| clock_blamed(error, began))
            }
        }
    }
}

/// Returns the error of a URL whose store this build does not have.
#[cfg(not(all(feature = "redis", feature = "postgres", feature = "mysql")))]
fn needs(scheme: &str, features: &str) -> LockError {
    config(format!(
        "`{scheme}://` needs the cargo {features} of `lock-runtime`"
    ))
}

/// If a paused clock ended the wait for an answer, and not a silent server, adds that to the error.
#[cfg(feature = "redis")]
fn clock_blamed(error: LockError, began: Moment) -> LockError {
    match error {
        LockError::Unavailable { name, source } if clock::now().has_jumped_since(began) => {
            let source = StoreError::new(format!(
                "{source}; tokio's clock is paused and jumps to every timeout while a server is at work: use \
                 `LockManager::in_memory` in tests that pause it"
            ));
            LockError::Unavailable { name, source }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_of_a_scheme_does_not_matter() {
        for (is_known, url) in [
            (true, "Memory://x"),
            (cfg!(feature = "redis"), "REDIS://h/"),
            (cfg!(feature = "postgres"), "Postgres://u:p@h/db"),
            (cfg!(feature = "mysql"), "MariaDB://u:p@h/db"),
        ] {
            assert_eq!(Location::parse(url).is_ok(), is_known, "{url}");
        }
    }

    #[cfg(not(feature = "redis"))]
    #[test]
    fn a_url_names_the_feature_that_it_needs_and_is_not_repeated() {
        for (url, names) in [
            ("redis://user:hunter2@host/", "`redis`"),
            ("unix:///run/redis.sock", "`redis`"),
            ("redis-cluster://host", "`redis`"),
            ("REDISS://user:hunter2@host/", "`tls-rustls`"),
            ("rediss-sentinel://host/service", "`tls-rustls`"),
            ("hunter2@host:6379", "`memory://`"),
            ("hunter2://host", "`memory://`"),
        ] {
            let error = Location::parse(url).unwrap_err().to_string();
            assert!(error.contains(names), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{url}: {error}");
        }
    }
}
