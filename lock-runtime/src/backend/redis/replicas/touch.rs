//! Touches: the scripts that renew write each hold that is still there once more as it is. A hold with a TTL is also
//! extended to it.

use super::super::cluster::Redirect;
use crate::backend::redis::connection::Wire;
use crate::backend::redis::kinds::renewals::{RenewalCarrier, RenewalPart, all, by_script};
use crate::backend::redis::scripting::faults;
use crate::backend::{Fault, Renewal, Renewed};
use crate::values::Key;

/// The outcome of one touch.
#[derive(Clone, Debug)]
pub(super) enum Touch {
    Made,
    /// The server does not have the hold.
    NotHeld,
    /// The server does not serve the key.
    Refused(Fault),
}

/// Touches the holds that are at this server. The answers are in the order of the holds.
///
/// With `clustered`, a script has keys of one slot only, and a failure for one slot says nothing about the rest.
pub(super) async fn touch(
    connection: &Wire,
    holds: &[Renewal],
    clustered: bool,
) -> Result<Vec<Touch>, Fault> {
    let slot = |key: &Key| if clustered { key.slot() } else { 0 };
    let mut touches = vec![Touch::NotHeld; holds.len()];
    let mut parts = by_script(holds, slot);
    while !parts.is_empty() {
        let marking = parts.iter().map(|part| -> RenewalPart<'_> {
            let holds: Vec<_> = part.iter().filter_map(|&at| holds.get(at)).collect();
            Box::pin(async move { RenewalCarrier::Waiting(connection).renew(&holds).await })
        });
        let answered = all(marking.collect()).await;
        let mut again = Vec::new();
        for (part, answered) in parts.into_iter().zip(answered) {
            let redirect = answered.as_ref().err().and_then(Redirect::of);
            match (answered, redirect.filter(|_| clustered)) {
                (Ok(answers), _) => {
                    for (at, answer) in part.into_iter().zip(answers) {
                        if answer == Renewed::Held {
                            touches[at] = Touch::Made;
                        }
                    }
                }
                // The slot is moving, and some of the keys may still be here.
                (Err(_), Some(redirect)) if redirect.may_split() && part.len() > 1 => {
                    again.extend(part.into_iter().map(|at| vec![at]));
                }
                // The script may have failed because of one of the keys.
                (Err(fault), None) if part.len() > 1 && faults::may_be_of_one_key(&fault) => {
                    let (first, rest) = part.split_at(part.len() / 2);
                    again.extend([first.to_vec(), rest.to_vec()]);
                }
                (Err(fault), redirect)
                    if redirect.is_some() || faults::may_be_of_one_key(&fault) =>
                {
                    for at in part {
                        touches[at] = Touch::Refused(fault.clone());
                    }
                }
                (Err(fault), _) => return Err(fault),
            }
        }
        parts = again;
    }
    Ok(touches)
}
