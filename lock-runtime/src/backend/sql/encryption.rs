//! The values of `sslmode` in a URL.

#[cfg(feature = "tls-rustls")]
pub(super) use crate::backend::kit::certificates::unusable;
use crate::values::{LockError, config};

/// A build without TLS: URLs that ask for it are refused before.
#[cfg(not(feature = "tls-rustls"))]
pub(super) fn unusable(error: LockError) -> crate::backend::Fault {
    crate::backend::Fault::impossible(error.to_string())
}

/// The use of TLS for connections, and what is verified of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    Off,
    /// The server's certificate is of a trusted authority, and names the host.
    Verified,
    /// The server's certificate is of a trusted authority.
    OfAuthority,
}

impl Encryption {
    /// Parses a mode in the words of libpq. `name` is the parameter's name, for errors.
    pub(crate) fn parse(name: &str, mode: &str) -> Result<Encryption, LockError> {
        let encryption = match mode {
            "disable" => Encryption::Off,
            "require" | "verify-full" => Encryption::Verified,
            "verify-ca" => Encryption::OfAuthority,
            "allow" | "prefer" => {
                return Err(config(format!(
                    "`{name}={mode}` leaves it to the network whether there is TLS: say `disable` or `verify-full`"
                )));
            }
            _ => {
                return Err(config(format!(
                    "`{name}` is `disable`, `require`, `verify-ca` or `verify-full`"
                )));
            }
        };
        if encryption != Encryption::Off && !cfg!(feature = "tls-rustls") {
            return Err(config(format!(
                "`{name}={mode}` needs the cargo feature `tls-rustls` of `lock-runtime`"
            )));
        }
        Ok(encryption)
    }
}
