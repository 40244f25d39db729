//! Options for dialling a server: the certificates and the login.

use redis::ConnectionInfo;

use crate::backend::kit::names::HostNames;
use crate::values::{Handshake, Login};

/// The certificates, the source of logins, and the names that were looked up. By default, there are none.
#[derive(Clone, Default)]
pub(crate) struct DialOptions {
    pub(super) handshake: Handshake,
    pub(super) names: HostNames,
}

impl DialOptions {
    pub(crate) fn new(handshake: &Handshake) -> DialOptions {
        DialOptions {
            handshake: handshake.clone(),
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
        self.handshake.certificates.are_given()
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
