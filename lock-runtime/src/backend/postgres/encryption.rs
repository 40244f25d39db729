//! The settings of tokio-postgres for the `sslmode` of a URL.

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode, SslNegotiation};

use crate::backend::sql::Encryption;
use crate::values::{LockError, config};

/// Sets whether connections use TLS, and refuses settings that contradict it. `Tls` decides what is verified.
pub(super) fn apply(encryption: Encryption, to: &mut Config) -> Result<(), LockError> {
    if encryption != Encryption::Off {
        to.ssl_mode(SslMode::Require);
        let mut hosts = to.get_hosts().iter();
        return if hosts.all(|host| matches!(host, Host::Tcp(_))) {
            Ok(())
        } else {
            Err(config(
                "a unix socket has no TLS: leave out `sslmode`, or name a host",
            ))
        };
    }
    to.ssl_mode(SslMode::Disable);
    let needs_tls = to.get_ssl_negotiation() == SslNegotiation::Direct
        || to.get_channel_binding() == ChannelBinding::Require;
    if needs_tls {
        Err(config(
            "`sslnegotiation=direct` and `channel_binding=require` need TLS: say `sslmode=verify-full`, too",
        ))
    } else {
        Ok(())
    }
}
