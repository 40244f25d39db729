//! Options for dialling a server: the certificates and the login.

use std::fmt;
use std::sync::Arc;

use redis::ConnectionInfo;

use crate::backend::kit::names::HostNames;
use crate::values::{Certificates, Credentials, Handshake, LockError, Login};

/// The certificates, the source of logins, and the names that were looked up. By default, there are none.
#[derive(Clone, Default)]
pub(crate) struct DialOptions {
    pub(super) credentials: Option<Arc<dyn Credentials>>,
    certificates: Certificates,
    pub(super) names: HostNames,
}

impl DialOptions {
    pub(crate) fn new(handshake: &Handshake) -> DialOptions {
        DialOptions {
            credentials: handshake.credentials.clone(),
            certificates: handshake.certificates.clone(),
            names: HostNames::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn of_names(names: HostNames) -> DialOptions {
        DialOptions {
            names,
            ..DialOptions::default()
        }
    }

    pub(crate) fn has_certificates(&self) -> bool {
        self.certificates.are_given()
    }
}

#[cfg(feature = "tls-rustls")]
impl DialOptions {
    /// Checks the certificates, before any I/O with a server.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`].
    pub(super) fn check(&self) -> Result<(), LockError> {
        crate::backend::kit::certificates::client(&self.certificates).map(drop)
    }

    /// Returns the settings of TLS as they are now.
    pub(super) fn tls(&self) -> Result<Arc<rustls::ClientConfig>, crate::backend::Fault> {
        use crate::backend::kit::certificates::{client, unusable};

        client(&self.certificates).map(Arc::new).map_err(unusable)
    }
}

impl fmt::Debug for DialOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialOptions")
            .field("credentials", &self.credentials.is_some())
            .field("certificates", &self.has_certificates())
            .finish()
    }
}

/// Returns the settings for the same server with that login.
pub(super) fn log_in_as(info: ConnectionInfo, login: &Login) -> ConnectionInfo {
    let mut settings = info.redis_settings().clone().set_password(&login.password);
    if let Some(user) = &login.user {
        settings = settings.set_username(user);
    }
    info.set_redis_settings(settings)
}
