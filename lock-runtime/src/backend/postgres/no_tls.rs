//! A build without TLS: URLs that ask for it are refused before they get here.

use tokio_postgres::Socket;
use tokio_postgres::tls::{MakeTlsConnect, NoTls, NoTlsStream};

use crate::backend::Fault;
use crate::backend::sql::Encryption;
use crate::values::{Certificates, LockError};

/// A stand-in that is never asked to begin TLS.
#[derive(Clone, Default)]
pub(crate) struct Tls(());

impl Tls {
    pub(super) fn new(_: Encryption, _: &Certificates) -> Result<Tls, LockError> {
        Ok(Tls(()))
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = NoTlsStream;
    type TlsConnect = NoTls;
    type Error = std::convert::Infallible;

    fn make_tls_connect(&mut self, _: &str) -> Result<NoTls, Self::Error> {
        Ok(NoTls)
    }
}

pub(super) type Encrypted = NoTlsStream;

pub(super) fn refusal(_: &tokio_postgres::Error) -> Option<Fault> {
    None
}
