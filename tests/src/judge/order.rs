//! A search for one order of events that explains all that was said of a mutex that is only ever tried.

use std::collections::HashSet;

use crate::linear::{OPEN, Op, Verdict, What, search};

use super::log::{Answer, Try};
use super::names::client_of;

/// The number of states that the search may try. A history with many unknown outcomes stays undecided.
const STATES: usize = 200_000;

/// The result of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// There is one.
    Found,
    /// There is none. The text says what could not be explained.
    None(String),
    /// The search tried too many states.
    Undecided,
}

/// Returns what was said of a lock that was asked for without a wait, as operations that have to be explained: each
/// refusal found a holder, and each confirmed release found its own hold.
pub fn operations(tries: &[Try], killed: &[String]) -> Vec<Op> {
    let mut ops = Vec::new();
    // These processes may still be about the release of a hold of their own. They refuse their own tries without asking
    // the store, which may have forgotten that hold long ago.
    let mut unsettled = HashSet::new();
    for (owner, it) in tries.iter().enumerate() {
        let client = client_of(&it.holder);
        let mut add = |what, from, until| {
            let token = match (what, &it.answer) {
                (What::Take, Answer::Granted { token, .. }) => *token,
                _ => None,
            };
            ops.push(Op {
                owner,
                what,
                token,
                from,
                until,
            });
        };
        match &it.answer {
            Answer::Refused if unsettled.contains(&client) => {}
            Answer::Refused => add(What::Refused, it.asked, it.over),
            Answer::Unknown => {
                unsettled.insert(client);
                add(What::MayTake, it.asked, OPEN);
                add(What::MayEnd, it.asked, OPEN);
            }
            Answer::Granted {
                token: _,
                at,
                seen,
                leaving,
                end,
            } => {
                add(What::Take, it.asked, *at);
                match end.as_str() {
                    "ok" | "lost" => unsettled.remove(&client),
                    _ => unsettled.insert(client),
                };
                match end.as_str() {
                    "ok" => add(What::End, *leaving, it.over),
                    "lost" => add(What::End, *seen, it.over),
                    _ => add(What::End, *seen, OPEN),
                }
            }
        }
    }
    for (number, name) in killed.iter().enumerate() {
        let client = format!("{name}.");
        let its = tries.iter().filter(|it| it.holder.starts_with(&client));
        let last = its.map(|it| it.over).max().unwrap_or(0);
        for what in [What::MayTake, What::MayEnd] {
            ops.push(Op {
                owner: tries.len() + number,
                what,
                token: None,
                from: last,
                until: OPEN,
            });
        }
    }
    ops
}

/// Looks for one order of events that explains these operations.
pub fn order(ops: &[Op]) -> Order {
    match search(ops, STATES) {
        Verdict::Impossible(explained, op) => Order::None(format!(
            "after {explained} of {} operations: {op:?}",
            ops.len()
        )),
        Verdict::Possible => Order::Found,
        Verdict::Undecided => Order::Undecided,
    }
}
