//! Touches: the scripts that renew write each hold that is still there once more as it is. A hold with a TTL is also
//! extended to it.

use super::super::cluster::Redirect;
use crate::backend::redis::connection::Wire;
use crate::backend::redis::kinds::renewals::{RenewalCarrier, RenewalPart, by_script, in_parts};
use crate::backend::redis::scripting::faults;
use crate::backend::{Fault, Renewal, Renewed};
use crate::values::Key;

/// Touches the holds that are at this server. The answers are in the order of the holds: whether the server has the hold, or
/// the fault if it does not serve the hold's key.
///
/// With `clustered`, a script has keys of one slot only, and a failure for one slot says nothing about the rest.
pub(super) async fn touch(
    connection: &Wire,
    holds: &[Renewal],
    clustered: bool,
) -> Result<Vec<Result<bool, Fault>>, Fault> {
    let slot = |key: &Key| if clustered { key.slot() } else { 0 };
    let mark = |holds: Vec<_>| -> RenewalPart<'_> {
        Box::pin(async move { RenewalCarrier::Waiting(connection).renew(&holds).await })
    };
    let is_of_the_key = |fault: &Fault| {
        clustered && Redirect::of(fault).is_some() || faults::may_be_of_one_key(fault)
    };
    let mut touches = vec![Ok(false); holds.len()];
    let parts = by_script(holds, slot);
    let (answers, _) = in_parts(holds, parts, clustered, usize::MAX, mark).await;
    for (at, answer) in answers {
        touches[at] = match answer {
            Err(fault) if !is_of_the_key(&fault) => return Err(fault),
            answer => answer.map(|renewed| renewed == Renewed::Held),
        };
    }
    Ok(touches)
}
