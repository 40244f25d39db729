//! What `sslmode` of a URL asks for.

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode, SslNegotiation};

use crate::values::error::{LockError, config};

/// Whether connections use TLS, and what of a server is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encryption {
    Off,
    /// Its certificate is of an authority that is trusted, and names the host.
    Verified,
    /// Its certificate is of an authority that is trusted.
    OfAuthority,
}

impl Encryption {
    pub(super) fn parse(mode: &str) -> Result<Encryption, LockError> {
        let encryption = match mode {
            "disable" => Encryption::Off,
            "require" | "verify-full" => Encryption::Verified,
            "verify-ca" => Encryption::OfAuthority,
            "allow" | "prefer" => {
                return Err(config(format!(
                    "`sslmode={mode}` leaves it to the network whether there is TLS: say `disable` or `verify-full`"
                )));
            }
            _ => {
                return Err(config(
                    "`sslmode` is `disable`, `require`, `verify-ca` or `verify-full`",
                ));
            }
        };
        if encryption != Encryption::Off && !cfg!(feature = "tls-rustls") {
            return Err(config(format!(
                "`sslmode={mode}` needs the cargo feature `tls-rustls` of `lock-runtime`"
            )));
        }
        Ok(encryption)
    }

    /// As tokio-postgres is told, which leaves what is verified to `Tls`.
    pub(super) fn apply(self, config: &mut Config) -> Result<(), LockError> {
        if self != Encryption::Off {
            config.ssl_mode(SslMode::Require);
            let all_are_hosts = config
                .get_hosts()
                .iter()
                .all(|host| matches!(host, Host::Tcp(_)));
            return match all_are_hosts {
                true => Ok(()),
                false => Err(self::config(
                    "a unix socket has no TLS: leave out `sslmode`, or name a host",
                )),
            };
        }
        config.ssl_mode(SslMode::Disable);
        let needs_tls = config.get_ssl_negotiation() == SslNegotiation::Direct
            || config.get_channel_binding() == ChannelBinding::Require;
        match needs_tls {
            true => Err(self::config(
                "`sslnegotiation=direct` and `channel_binding=require` need TLS: say `sslmode=verify-full`, too",
            )),
            false => Ok(()),
        }
    }
}
