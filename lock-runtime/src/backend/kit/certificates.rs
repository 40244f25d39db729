//! Certificates as rustls takes them: those that a client trusts, and the one that it shows.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::values::{Certificates, LockError, config};

/// The authorities that the builder was given, if it was.
///
/// # Errors
/// [`LockError::InvalidConfig`] if the text holds none, or something else.
pub(crate) fn given_authorities(
    certificates: &Certificates,
) -> Result<Option<Vec<CertificateDer<'static>>>, LockError> {
    let Some(root) = &certificates.root else {
        return Ok(None);
    };
    let authorities = chain(root, "the root certificate")?;
    roots_of(&authorities)?;
    Ok(Some(authorities))
}

/// The same, as rustls takes them.
pub(crate) fn given_roots(certificates: &Certificates) -> Result<Option<RootCertStore>, LockError> {
    let given = given_authorities(certificates)?;
    given.map(|given| roots_of(&given)).transpose()
}

fn roots_of(authorities: &[CertificateDer<'static>]) -> Result<RootCertStore, LockError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let added = roots.add(authority.clone());
        added.map_err(|error| config(format!("the root certificate is of no use: {error}")))?;
    }
    Ok(roots)
}

/// The authorities that the operating system trusts.
///
/// # Errors
/// [`LockError::InvalidConfig`] if there are none.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn system_authorities() -> Result<Vec<CertificateDer<'static>>, LockError> {
    let found = rustls_native_certs::load_native_certs();
    let mut authorities = found.certs;
    authorities.retain(|authority| RootCertStore::empty().add(authority.clone()).is_ok());
    if !authorities.is_empty() {
        return Ok(authorities);
    }
    let why = found.errors.first().map(|error| format!(" ({error})"));
    Err(config(format!(
        "the operating system names no authorities to trust{}: install them, name a file in SSL_CERT_FILE, or give them \
         to `root_certificate`",
        why.unwrap_or_default()
    )))
}

/// The same, as rustls takes them.
#[cfg(feature = "postgres")]
pub(crate) fn system_roots() -> Result<RootCertStore, LockError> {
    roots_of(&system_authorities()?)
}

/// A client that trusts these authorities, and shows the certificate that the builder was given.
///
/// # Errors
/// [`LockError::InvalidConfig`] if that certificate cannot be read, or is not that of its key.
pub(crate) fn client(
    roots: RootCertStore,
    certificates: &Certificates,
) -> Result<ClientConfig, LockError> {
    let unfit = |error| {
        config(format!(
            "the client certificate and its key do not fit each other: {error}"
        ))
    };
    // Named, for the process may have chosen no provider, or another one.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trusting = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unfit)?
        .with_root_certificates(roots);
    let Some((shown, key)) = &certificates.client else {
        return Ok(trusting.with_no_client_auth());
    };
    let shown = chain(shown, "the client certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
        config("the client certificate's key is no private key in PEM form, or is encrypted")
    })?;
    trusting.with_client_auth_cert(shown, key).map_err(unfit)
}

fn chain(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, LockError> {
    match CertificateDer::pem_slice_iter(pem).collect() {
        Ok(chain) if !Vec::is_empty(&chain) => Ok(chain),
        Ok(_) => Err(config(format!("{what} holds no certificate in PEM form"))),
        Err(error) => Err(config(format!("{what} is no PEM text: {error}"))),
    }
}
