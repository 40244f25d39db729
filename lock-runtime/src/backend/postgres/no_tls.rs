//! A build without TLS: URLs that ask for it are refused before they get here.

pub(super) use tokio_postgres::NoTls as Tls;
pub(super) use tokio_postgres::tls::NoTlsStream as Encrypted;

use crate::backend::Fault;
use crate::backend::sql::Encryption;
use crate::values::{Certificates, LockError};

pub(super) fn settings(_: Encryption, _: &Certificates) -> Result<Tls, LockError> {
    Ok(Tls)
}

pub(super) fn refusal(_: &tokio_postgres::Error) -> Option<Fault> {
    None
}
