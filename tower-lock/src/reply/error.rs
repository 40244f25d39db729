//! The reply for services that are not HTTP.

use crate::refusal::Refusal;
use crate::reply::Reply;

/// Refuses with an error: for services whose error is `From<Refusal>`, such as `tower::BoxError`.
///
/// [`Refusal::kind`] tells the caller why, and [`Refusal::error`] has the lock's own error.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsError;

impl<Response, Error> Reply<Response, Error> for AsError
where
    Error: From<Refusal>,
{
    fn reply(&self, refusal: Refusal) -> Result<Response, Error> {
        Err(Error::from(refusal))
    }
}
