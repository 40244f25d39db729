//! TLS by the driver's rustls. A server that cannot be verified is not connected to.

use mysql_async::{ClientIdentity, DriverError, Error, IoError, SslOpts, TlsError};
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};

use crate::backend::Fault;
use crate::backend::kit::certificates::{client_of, given_authorities, shown, system_authorities};
use crate::backend::kit::tls_refusal;
use crate::backend::sql::Encryption;
use crate::values::{Certificates, LockError, config};

/// Returns the TLS settings of the driver. See [`HostSettings::tls`](crate::backend::sql::url::HostSettings::tls).
pub(super) fn options(
    encryption: Encryption,
    certificates: &Certificates,
) -> Result<Option<SslOpts>, LockError> {
    let given = given_authorities(certificates)?;
    match encryption {
        Encryption::Off => return Ok(None),
        Encryption::Verified => {}
        // The driver's `danger_skip_domain_validation` looks for a text that rustls no longer uses.
        Encryption::OfAuthority => {
            return Err(config(
                "`sslmode=verify-ca` is not there on MySQL: its driver cannot leave out the name of the host; say \
                 `sslmode=verify-full`",
            ));
        }
    }
    // The driver reads the certificates only later. This reports errors in them now.
    let identity = shown(certificates)?;
    client_of(RootCertStore::empty(), identity.as_ref())?;
    let trusted = given.map_or_else(system_authorities, Ok)?;
    let trusted = trusted.iter().map(|authority| authority.to_vec().into());
    let identity = identity.map(|(chain, key)| ClientIdentity::new(chain.into(), key.into()));
    // The driver takes the process's provider, and installs one itself if there is none: it panics if it has to choose.
    if CryptoProvider::get_default().is_none() {
        let _ = ring::default_provider().install_default();
    }
    let options = SslOpts::default()
        .with_disable_built_in_roots(true)
        .with_root_certs(trusted.collect())
        .with_client_identity(identity);
    Ok(Some(options))
}

/// Returns the fault of an error that came from rustls, or that says that the server has no TLS.
pub(super) fn refusal(error: &Error) -> Option<Fault> {
    let refused = match error {
        Error::Driver(DriverError::NoClientSslFlagFromServer) => {
            return Some(Fault::impossible(
                "the server has no TLS: set `ssl_cert` and `ssl_key` there, or say `sslmode=disable` if nobody can read \
                 along",
            ));
        }
        Error::Io(IoError::Tls(TlsError::Tls(refused))) => refused,
        Error::Io(IoError::Io(io)) => io.get_ref()?.downcast_ref::<rustls::Error>()?,
        _ => return None,
    };
    let plain = "If it speaks none, say `sslmode=disable`";
    Some(tls_refusal::explained(&refused.to_string(), plain))
}
