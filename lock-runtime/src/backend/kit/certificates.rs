//! Certificates as rustls takes them: those that a client trusts, and the one that it shows.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::backend::Fault;
use crate::values::{Certificates, LockError, PemPair, config};

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
    let authorities = chain(&root()?, "the root certificate")?;
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
fn system_roots() -> Result<RootCertStore, LockError> {
    roots_of(&system_authorities()?)
}

/// A client that trusts the authorities that the builder was given, else those of the operating system, and shows the
/// certificate that the builder was given.
///
/// # Errors
/// [`LockError::InvalidConfig`] if there are no authorities, or the certificate cannot be read or is not that of its key.
pub(crate) fn client(certificates: &Certificates) -> Result<ClientConfig, LockError> {
    let given = given_roots(certificates)?;
    client_of(
        given.map_or_else(system_roots, Ok)?,
        shown(certificates)?.as_ref(),
    )
}

/// The chain and the key that the builder was given, as they are now.
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

/// A client that trusts these authorities, and shows this chain with its key.
///
/// # Errors
/// [`LockError::InvalidConfig`] if the certificate is not that of its key.
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
        config("the client certificate's key is no private key in PEM form, or is encrypted")
    })?;
    trusting.with_client_auth_cert(shown, key).map_err(unfit)
}

/// The provider of cryptography that the program has installed for its process. If there is none, ours, which is not
/// installed: the program may want to install its own later.
fn provider() -> Arc<CryptoProvider> {
    let installed = CryptoProvider::get_default().cloned();
    installed.unwrap_or_else(|| Arc::new(ring::default_provider()))
}

/// Returns the fault of certificates that are of no use when a connection is opened. They were of use before, so somebody
/// may be replacing them.
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
        Err(error) => Err(config(format!("{what} is no PEM text: {error}"))),
    }
}
