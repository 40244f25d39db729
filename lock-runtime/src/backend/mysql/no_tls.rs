//! A build without TLS: URLs that ask for it are refused before they get here.

use mysql_async::{Error, SslOpts};

use crate::backend::Fault;
use crate::backend::sql::Encryption;
use crate::values::{Certificates, LockError};

pub(super) fn options(_: Encryption, _: &Certificates) -> Result<Option<SslOpts>, LockError> {
    Ok(None)
}

pub(super) fn refusal(_: &Error) -> Option<Fault> {
    None
}
