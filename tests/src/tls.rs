//! A certificate authority of one test server.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// The files that a TLS listener and its clients need.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The authority's certificate, which a client has to trust.
    pub authority: PathBuf,
    /// The server's certificate, for `localhost` and `127.0.0.1`.
    pub certificate: PathBuf,
    /// The server's private key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Makes an authority and a server certificate, and writes them into `dir`.
    pub fn write_to(dir: &Path) -> Self {
        Self::write_with(dir, |_| {})
    }

    /// Does the same as [`write_to`](Self::write_to) with another server certificate.
    pub fn write_with(dir: &Path, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = CertificateParams::default();
        // The authority's name differs from the certificate's. Otherwise, OpenSSL would take the certificate for one
        // that vouches for itself.
        params
            .distinguished_name
            .push(DnType::CommonName, "the tests' authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().expect("a key pair for the authority");
        let authority = CertifiedIssuer::self_signed(params, authority_key).expect("an authority");

        let key = KeyPair::generate().expect("a key pair for the server");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("names");
        change(&mut params);
        let certificate = params.signed_by(&key, &authority);
        let certificate = certificate.expect("a server certificate");

        let client_key = KeyPair::generate().expect("a key pair for a client");
        let client_certificate = CertificateParams::new(vec!["client".to_owned()])
            .and_then(|params| params.signed_by(&client_key, &authority))
            .expect("a client certificate");

        let files = Self::of(dir);
        let write = |path: &Path, pem: String| std::fs::write(path, pem).expect("write a PEM file");
        write(&files.client_certificate(), client_certificate.pem());
        write(&files.client_key(), client_key.serialize_pem());
        write(&files.authority, authority.pem());
        write(&files.certificate, certificate.pem());
        write(&files.key, key.serialize_pem());
        files
    }

    /// Returns the files that were written into `dir`.
    pub fn of(dir: &Path) -> Self {
        Self {
            authority: dir.join("ca.pem"),
            certificate: dir.join("server.pem"),
            key: dir.join("server.key"),
        }
    }

    /// Returns a client's certificate, by the same authority.
    pub fn client_certificate(&self) -> PathBuf {
        self.authority.with_file_name("client.pem")
    }

    /// Returns the client's private key.
    pub fn client_key(&self) -> PathBuf {
        self.authority.with_file_name("client.key")
    }

    /// Returns the lines of a server's configuration that name them.
    pub(crate) fn conf(&self) -> [String; 4] {
        [
            format!("tls-cert-file {}", self.certificate.display()),
            format!("tls-key-file {}", self.key.display()),
            format!("tls-ca-cert-file {}", self.authority.display()),
            "tls-auth-clients no".to_owned(),
        ]
    }
}
