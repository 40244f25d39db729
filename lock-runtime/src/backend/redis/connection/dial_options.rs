//! Options for dialling a server: the certificates and the login.

use std::fmt;
use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo};

use crate::values::{Certificates, Credentials, Handshake, LockError, Login, config};

/// Certificates in the client's form, and whom to ask for a login. By default neither.
#[derive(Clone, Default)]
pub(crate) struct DialOptions {
    pub(super) credentials: Option<Arc<dyn Credentials>>,
    /// The client's certificates, in an address without a host, because the client has no public type for them alone.
    certified: Option<ConnectionAddr>,
}

impl DialOptions {
    /// Checks the certificates that the builder was given.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`].
    pub(crate) fn new(handshake: &Handshake) -> Result<DialOptions, LockError> {
        let certificates = &handshake.certificates;
        Ok(DialOptions {
            credentials: handshake.credentials.clone(),
            certified: match certificates.are_given() {
                true => Some(certified(certificates)?),
                false => None,
            },
        })
    }

    pub(crate) fn has_certificates(&self) -> bool {
        self.certified.is_some()
    }

    /// The server, with the certificates for it.
    pub(super) fn certify(&self, info: ConnectionInfo) -> ConnectionInfo {
        let mut address = info.addr().clone();
        if let Some(ConnectionAddr::TcpTls { tls_params, .. }) = &self.certified
            && let ConnectionAddr::TcpTls {
                tls_params: used, ..
            } = &mut address
        {
            used.clone_from(tls_params);
        }
        info.set_addr(address)
    }
}

impl fmt::Debug for DialOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialOptions")
            .field("credentials", &self.credentials.is_some())
            .field("certificates", &self.certified.is_some())
            .finish()
    }
}

/// The same server, with that login.
pub(super) fn log_in_as(info: ConnectionInfo, login: &Login) -> ConnectionInfo {
    let mut settings = info.redis_settings().clone().set_password(&login.password);
    if let Some(user) = &login.user {
        settings = settings.set_username(user);
    }
    info.set_redis_settings(settings)
}

#[cfg(not(feature = "tls-rustls"))]
fn certified(_: &Certificates) -> Result<ConnectionAddr, LockError> {
    Err(config(
        "certificates need the cargo feature `tls-rustls` of `lock-runtime`",
    ))
}

#[cfg(feature = "tls-rustls")]
fn certified(certificates: &Certificates) -> Result<ConnectionAddr, LockError> {
    use redis::{Client, ClientTlsConfig, TlsCertificates};

    use crate::backend::kit::certificates::{client, given_roots};

    // The client would find out only while connecting, or never.
    let roots = given_roots(certificates)?.unwrap_or_else(rustls::RootCertStore::empty);
    client(roots, certificates)?;
    let nowhere = ConnectionAddr::TcpTls {
        host: "localhost".to_owned(),
        port: 0,
        insecure: false,
        tls_params: None,
    };
    let client_tls = certificates.client.as_ref().map(|(chain, key)| {
        let (client_cert, client_key) = (chain.clone(), key.clone());
        ClientTlsConfig {
            client_cert,
            client_key,
        }
    });
    let given = TlsCertificates {
        client_tls,
        root_cert: certificates.root.clone(),
    };
    let client = Client::build_with_tls(nowhere, given)
        .map_err(|error| config(format!("the certificates are of no use: {error}")))?;
    Ok(client.get_connection_info().addr().clone())
}
