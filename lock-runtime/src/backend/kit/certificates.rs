//! The certificates for rustls: the authorities that a client trusts, and the certificate that it shows.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::backend::Fault;
use crate::values::{Certificates, LockError, PemPair, config};

/// Returns the authorities that the builder was given, if any.
///
/// # Errors
/// [`LockError::InvalidConfig`] if the text has no certificate, or has something else.
pub(crate) fn given_authorities(
    certificates: &Certificates,
) -> Result<Option<Vec<CertificateDer<'static>>>, LockError> {
    let Some(root) = &certificates.root else {
        return Ok(None);
    };
    let authorities = chain(&root()?, "the root certificate")?;
    roots_of(&authorities)?;
    Ok(Some(authorities))
}

/// Returns authorities in rustls's form.
///
/// # Errors
/// [`LockError::InvalidConfig`] if they are of no use.
pub(crate) fn roots_of(
    authorities: &[CertificateDer<'static>],
) -> Result<RootCertStore, LockError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let added = roots.add(authority.clone());
        added.map_err(|error| config(format!("the root certificate is of no use: {error}")))?;
    }
    Ok(roots)
}

/// Returns the authorities that the operating system trusts.
///
/// # Errors
/// [`LockError::InvalidConfig`] if there are none.
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

/// Returns a client that trusts the authorities of the builder, or else those of the operating system, and shows the
/// certificate of the builder.
///
/// # Errors
/// [`LockError::InvalidConfig`] if there are no authorities, or if the certificate cannot be read or does not fit its
/// key.
pub(crate) fn client(certificates: &Certificates) -> Result<ClientConfig, LockError> {
    let trusted = given_authorities(certificates)?.map_or_else(system_authorities, Ok)?;
    client_of(roots_of(&trusted)?, shown(certificates)?.as_ref())
}

/// Returns the chain and the key that the builder was given, as they are now.
///
/// # Errors
/// [`LockError::InvalidConfig`] if they cannot be read.
pub(crate) fn shown(certificates: &Certificates) -> Result<Option<PemPair>, LockError> {
    certificates
        .client
        .as_ref()
        .map(|client| client())
        .transpose()
}

/// Returns a client that trusts these authorities, and shows this chain with its key.
///
/// # Errors
/// [`LockError::InvalidConfig`] if the certificate does not fit its key.
pub(crate) fn client_of(
    roots: RootCertStore,
    shown: Option<&PemPair>,
) -> Result<ClientConfig, LockError> {
    let unfit = |error| {
        config(format!(
            "the client certificate and its key do not fit each other: {error}"
        ))
    };
    let trusting = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unfit)?
        .with_root_certificates(roots);
    let Some((shown, key)) = shown else {
        return Ok(trusting.with_no_client_auth());
    };
    let shown = chain(shown, "the client certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
        config("the client certificate's key is not a private key in PEM form, or is encrypted")
    })?;
    trusting.with_client_auth_cert(shown, key).map_err(unfit)
}

/// Returns the provider of cryptography that the program has installed for its process. If there is none, returns
/// ring's and does not install it: the program may want to install its own later.
fn provider() -> Arc<CryptoProvider> {
    let installed = CryptoProvider::get_default().cloned();
    installed.unwrap_or_else(|| Arc::new(ring::default_provider()))
}

/// Returns the fault of certificates that cannot be used when a connection is opened. They could be used before, so
/// they may be being replaced.
pub(crate) fn unusable(error: LockError) -> Fault {
    Fault::not_done(match error {
        LockError::InvalidConfig { why } => why,
        error => error.to_string(),
    })
}

fn chain(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, LockError> {
    match CertificateDer::pem_slice_iter(pem).collect() {
        Ok(chain) if !Vec::is_empty(&chain) => Ok(chain),
        Ok(_) => Err(config(format!("{what} holds no certificate in PEM form"))),
        Err(error) => Err(config(format!("{what} is not PEM text: {error}"))),
    }
}
