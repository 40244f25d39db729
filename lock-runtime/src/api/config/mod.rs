//! A manager's options as a file or the environment holds them.

mod env;
#[cfg(feature = "serde")]
mod file;
mod setting;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::setting::Setting;
use crate::api::builder::LockManagerBuilder;
use crate::api::manager::LockManager;
use crate::values::{ClusterChannels, LockError, Replicas, config, pem_file, pem_files};

/// The settings that may hold passwords, which are not shown.
const SECRET: [&str; 2] = ["url", "quorum"];

macro_rules! settings {
    ($($(#[$about:meta])* $name:ident: $type:ty $(=> $set:expr)?,)*) => {
        /// The options of a [`LockManagerBuilder`], and the store, as a file or the environment holds them.
        ///
        /// [Running on Redis](crate::_documentation::redis#configuration) has a table of all settings: how each is written,
        /// and its default. A setting that is `None` is left at the builder's default.
        ///
        /// ```
        /// use lock_runtime::LockConfig;
        ///
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() -> Result<(), lock_runtime::LockError> {
        /// let mut config = LockConfig::from_env()?; // LOCK_URL, LOCK_NAMESPACE, LOCK_LEASE …
        /// config.url.get_or_insert("memory://".to_owned());
        /// let locks = config.connect().await?;
        /// # drop(locks);
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// With the feature `serde` it can be deserialized, from any format: unknown fields are refused by name, durations
        /// are texts such as `"30s"`, as in the attribute, and every value may also be written as a text.
        ///
        /// `Debug` shows no password.
        #[derive(Clone, Default)]
        #[non_exhaustive]
        pub struct LockConfig {
            $($(#[$about])* pub $name: Option<$type>,)*
        }

        impl LockConfig {
            /// Every setting, in the order of the documentation.
            const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// Sets one setting by its name.
            fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
                match name {
                    $(stringify!($name) => self.$name = Some(Setting::read(text)?),)*
                    _ => return Err("there is no such setting".to_owned()),
                }
                Ok(())
            }

            /// Sets the options of a builder, except the store and the contents of other files.
            fn apply(&self, mut builder: LockManagerBuilder) -> LockManagerBuilder {
                $($(
                    let set: fn(LockManagerBuilder, $type) -> LockManagerBuilder = $set;
                    if let Some(value) = self.$name.clone() {
                        builder = set(builder, value);
                    }
                )?)*
                builder
            }
        }

        impl fmt::Debug for LockConfig {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut shown = f.debug_struct("LockConfig");
                $(match &self.$name {
                    Some(_) if SECRET.contains(&stringify!($name)) => {
                        shown.field(stringify!($name), &"(set)");
                    }
                    Some(value) => _ = shown.field(stringify!($name), value),
                    None => {}
                })*
                shown.finish()
            }
        }

        #[cfg(test)]
        const TYPES: &[(&str, &str)] = &[$((stringify!($name), stringify!($type))),*];
    };
}

settings! {
    /// The store: a URL as in [`LockManagerBuilder::connect`].
    url: String,
    /// The stores of a quorum, in place of `url`: see [`LockManagerBuilder::quorum`].
    quorum: Vec<String>,
    /// See [`LockManagerBuilder::namespace`].
    namespace: String => LockManagerBuilder::namespace,
    /// See [`LockManagerBuilder::app`].
    app: String => LockManagerBuilder::app,
    /// See [`LockManagerBuilder::lease`].
    lease: Duration => LockManagerBuilder::lease,
    /// See [`LockManagerBuilder::longest_lease`].
    longest_lease: Duration => LockManagerBuilder::longest_lease,
    /// See [`LockManagerBuilder::wait`].
    wait: Duration => LockManagerBuilder::wait,
    /// See [`LockManagerBuilder::fencing`].
    fencing: bool => LockManagerBuilder::fencing,
    /// See [`LockManagerBuilder::call_timeout`].
    call_timeout: Duration => LockManagerBuilder::call_timeout,
    /// See [`LockManagerBuilder::max_waiters`].
    max_waiters: usize => LockManagerBuilder::max_waiters,
    /// See [`LockManagerBuilder::max_waiters_per_key`].
    max_waiters_per_key: usize => LockManagerBuilder::max_waiters_per_key,
    /// See [`LockManagerBuilder::shutdown_grace`].
    shutdown_grace: Duration => LockManagerBuilder::shutdown_grace,
    /// See [`LockManagerBuilder::replicas`].
    replicas: Replicas => LockManagerBuilder::replicas,
    /// See [`Replicas::within`].
    replicas_within: Duration => |builder, within| {
        let replicas = builder.options.replicas.within(within);
        builder.replicas(replicas)
    },
    /// See [`Replicas::renewals`].
    replicas_renewals: bool => |builder, renewals| {
        let replicas = builder.options.replicas.renewals(renewals);
        builder.replicas(replicas)
    },
    /// See [`LockManagerBuilder::strict`].
    strict: bool => LockManagerBuilder::strict,
    /// See [`LockManagerBuilder::lazy`].
    lazy: bool => LockManagerBuilder::lazy,
    /// See [`LockManagerBuilder::cluster_channels`].
    cluster_channels: ClusterChannels => LockManagerBuilder::cluster_channels,
    /// See [`LockManagerBuilder::ensure_schema`].
    ensure_schema: bool => LockManagerBuilder::ensure_schema,
    /// The PEM file with the client's certificate and its chain: `LockManagerBuilder::client_certificate`. Needs
    /// `client_key`, and the feature `tls-rustls`.
    client_certificate: PathBuf,
    /// The PEM file with the private key of `client_certificate`.
    client_key: PathBuf,
    /// The PEM file with the authorities to trust: `LockManagerBuilder::root_certificate`. Needs the feature `tls-rustls`.
    root_certificate: PathBuf,
}

impl LockConfig {
    /// Sets one setting by its name, and checks its bounds.
    fn set_checked(&mut self, name: &str, text: &str) -> Result<(), String> {
        // The setting is checked alone, so that any error is about this one.
        let mut alone = LockConfig::default();
        alone.set(name, text)?;
        let LockManagerBuilder { mut options, .. } = alone.apply(LockManager::builder());
        if let Some(longest) = options.longest_lease {
            // The lease is another setting. The builder checks the two of them together.
            options.lease = options.lease.min(longest);
        }
        options.check().map_err(|error| error.to_string())?;
        self.set(name, text)
    }

    /// Returns a builder with these options, to which you can add what a file cannot hold, such as
    /// [`credentials`](LockManagerBuilder::credentials). The store has to be named to the builder again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # use lock_runtime::LockConfig;
    /// let config = LockConfig::from_env()?;
    /// let locks = config.builder()?.strict(true).connect("memory://").await?;
    /// # drop(locks);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] if a certificate's file cannot be read, a certificate has no key, or a setting for
    /// replicas has no `replicas` beside it.
    pub fn builder(&self) -> Result<LockManagerBuilder, LockError> {
        let of_replicas = self.replicas_within.is_some() || self.replicas_renewals == Some(true);
        if of_replicas && self.replicas.is_none() {
            return Err(config(
                "`replicas_within` and `replicas_renewals` need `replicas` (in the environment `LOCK_REPLICAS`): without it, \
                 no replica is asked",
            ));
        }
        let mut builder = self.apply(LockManager::builder());
        let certificates = &mut builder.options.handshake.certificates;
        certificates.client = match (&self.client_certificate, &self.client_key) {
            (Some(chain), Some(key)) => {
                let chain = file("client_certificate", chain)?;
                Some(pem_files(chain, file("client_key", key)?))
            }
            (None, None) => None,
            _ => {
                return Err(config(
                    "`client_certificate` and `client_key` belong together: one of them is missing",
                ));
            }
        };
        if let Some(root) = &self.root_certificate {
            certificates.root = Some(pem_file(file("root_certificate", root)?));
        }
        Ok(builder)
    }

    /// Connects to `url`, or to the `quorum`.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] if there is neither, or both; otherwise those of [`builder`](LockConfig::builder)
    /// and [`LockManagerBuilder::connect`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect(&self) -> Result<LockManager, LockError> {
        match (&self.url, &self.quorum) {
            (Some(url), None) => self.builder()?.connect(url).await,
            (None, Some(nodes)) => self.builder()?.quorum(nodes).await,
            (None, None) => Err(config(
                "the configuration names no store: set `url` (in the environment `LOCK_URL`), or `quorum`",
            )),
            (Some(_), Some(_)) => Err(config(
                "the configuration has a `url` and a `quorum`: leave one of them out",
            )),
        }
    }
}

/// Returns the path of a file that can be read now. It is read again whenever a connection is opened.
fn file(setting: &str, path: &Path) -> Result<PathBuf, LockError> {
    match std::fs::read(path) {
        Ok(_) => Ok(path.to_owned()),
        Err(error) => {
            let path = path.display();
            Err(config(format!(
                "`{setting}`: {path} cannot be read: {error}"
            )))
        }
    }
}

#[cfg(test)]
mod tests;
