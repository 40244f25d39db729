//! The certificates that a manager shows, and those that it trusts.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use crate::api::builder::LockManagerBuilder;
use crate::values::{LockError, config, pem_file, pem_files};

impl LockManagerBuilder {
    /// Shows the server a certificate (mutual TLS): the chain in PEM form, the client's own first, and its private key,
    /// which is not encrypted. Default: none. Needs a URL with TLS (`rediss…`, or `sslmode` of a database), and the feature
    /// `tls-rustls`.
    ///
    /// ```no_run
    /// # use lock_runtime::LockManager;
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = LockManager::builder()
    ///     .client_certificate(std::fs::read("client.pem")?, std::fs::read("client.key")?)
    ///     .root_certificate(std::fs::read("authority.pem")?);
    /// let locks = builder.connect("rediss://cache.example.com/").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It is checked before any I/O. A server that wants a certificate, and gets none or one of an authority that it does
    /// not trust, is [`LockError::Denied`](crate::LockError::Denied). It is shown to Sentinels, too.
    pub fn client_certificate(mut self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        let pair = (chain.as_ref().to_vec(), key.as_ref().to_vec());
        self.options.handshake.certificates.client = Some(Arc::new(move || Ok(pair.clone())));
        self
    }

    /// The same, from files. They are read whenever a connection is opened: a certificate that is replaced there before it
    /// expires is shown from the next connection on. A file that cannot be read is
    /// [`LockError::InvalidConfig`](crate::LockError::InvalidConfig) at first, and later a fault that may pass.
    ///
    /// ```no_run
    /// # use lock_runtime::LockManager;
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = LockManager::builder()
    ///     .client_certificate_files("/run/tls/client.pem", "/run/tls/client.key")
    ///     .root_certificate_file("/run/tls/authority.pem");
    /// let locks = builder.connect("rediss://cache.example.com/").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn client_certificate_files(
        mut self,
        chain: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let files = pem_files(chain.into(), key.into());
        self.options.handshake.certificates.client = Some(files);
        self
    }

    /// The same, from a function that returns the chain and the key as they are now, for certificates that an agent of the
    /// program replaces. It is called whenever a connection is opened, on the task that opens it, so it must not block.
    ///
    /// ```no_run
    /// use std::sync::{Arc, RwLock};
    /// # use lock_runtime::LockManager;
    /// # fn first_certificate() -> (Vec<u8>, Vec<u8>) { Default::default() }
    ///
    /// let newest = Arc::new(RwLock::new(first_certificate())); // an agent writes the next ones
    /// let builder = LockManager::builder().client_certificate_from({
    ///     let newest = newest.clone();
    ///     move || Ok::<_, std::io::Error>(newest.read().unwrap().clone())
    /// });
    /// ```
    ///
    /// An error and a panic are [`LockError::InvalidConfig`](crate::LockError::InvalidConfig) at first, and later a fault
    /// that may pass. The text of the error is shown in errors and logs: it must not hold a secret.
    pub fn client_certificate_from<E: Into<Box<dyn Error + Send + Sync>>>(
        mut self,
        newest: impl Fn() -> Result<(Vec<u8>, Vec<u8>), E> + Send + Sync + 'static,
    ) -> Self {
        let ask = move || ask("client_certificate_from", &newest);
        self.options.handshake.certificates.client = Some(Arc::new(ask));
        self
    }

    /// Trusts servers whose certificates these authorities vouch for, one or more in PEM form, and no others. Default:
    /// the authorities that the operating system trusts, as they are when a connection is opened. Needs a URL with TLS
    /// (`rediss…`, or `sslmode` of a database), and the feature `tls-rustls`.
    pub fn root_certificate(mut self, authorities: impl AsRef<[u8]>) -> Self {
        let authorities = authorities.as_ref().to_vec();
        self.options.handshake.certificates.root = Some(Arc::new(move || Ok(authorities.clone())));
        self
    }

    /// The same, from a file, which is read whenever a connection is opened: see
    /// [`client_certificate_files`](Self::client_certificate_files).
    pub fn root_certificate_file(mut self, authorities: impl Into<PathBuf>) -> Self {
        self.options.handshake.certificates.root = Some(pem_file(authorities.into()));
        self
    }

    /// The same, from a function: see [`client_certificate_from`](Self::client_certificate_from).
    pub fn root_certificate_from<E: Into<Box<dyn Error + Send + Sync>>>(
        mut self,
        newest: impl Fn() -> Result<Vec<u8>, E> + Send + Sync + 'static,
    ) -> Self {
        let ask = move || ask("root_certificate_from", &newest);
        self.options.handshake.certificates.root = Some(Arc::new(ask));
        self
    }
}

/// Asks a function of the caller. Its panic must not end the task that opens connections.
fn ask<T, E: Into<Box<dyn Error + Send + Sync>>>(
    option: &str,
    newest: impl Fn() -> Result<T, E>,
) -> Result<T, LockError> {
    match catch_unwind(AssertUnwindSafe(newest)) {
        Ok(answer) => {
            answer.map_err(|error| config(format!("`{option}` failed: {}", error.into())))
        }
        Err(_) => Err(config(format!("`{option}` panicked"))),
    }
}
