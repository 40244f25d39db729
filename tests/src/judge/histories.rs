//! Histories as files, for a judge that knows nothing of this program: `tests/verify`, whose README has the form.
//!
//! Beside each history of a lock there are some that were made wrong on purpose. Both judges have to see that.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use serde_json::{Value, json};

use super::log::{Log, Write};
use super::order::{self, Order};
use crate::linear::{OPEN, Op, Verdict, What, search};

/// How many wrong histories are made of a true one, and the number of times that it is tried for each.
const WRONG_ONES: usize = 12;
const TRIES: usize = 4;
/// The number of states after which a wrong history is given up, because there are others.
const STATES: usize = 20_000;

/// Writes the histories of a run into a folder, under names that begin with `name`. `order`: the result of our own search, if
/// there has to be an order. Returns the number of files.
///
/// # Errors
/// Those of the file system.
pub fn write(
    folder: &Path,
    name: &str,
    what: &str,
    log: &Log,
    order: Option<&Order>,
) -> std::io::Result<usize> {
    fs::create_dir_all(folder)?;
    let file = |part: String| folder.join(format!("{name}-{part}.jsonl"));
    let mut files = 0;
    let mut write = |path: PathBuf, model, judged, lines: Vec<Value>| {
        files += 1;
        let header = json!({ "history": what, "model": model, "judged": judged });
        let lines = std::iter::once(header).chain(lines);
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        fs::File::create(path)?.write_all(text.as_bytes())
    };
    if let Some(judged) = order {
        let ops = order::operations(&log.tries, &log.killed);
        let judged = match judged {
            Order::Found => "possible",
            Order::None(_) => "impossible",
            Order::Undecided => "undecided",
        };
        write(file("lock".to_owned()), "lock", judged, of_lock(&ops))?;
        let mut rng = Rng::with_seed(log.operations());
        for (number, wrong) in wrong_ones(&ops, &mut rng).into_iter().enumerate() {
            let path = file(format!("wrong-{number}"));
            write(path, "lock", "impossible", of_lock(&wrong))?;
        }
    }
    let mut writes = log.writes.clone();
    writes.retain(|write| write.token > 0);
    writes.sort_by(|a, b| (&a.key, a.number).cmp(&(&b.key, b.number)));
    for of_key in writes.chunk_by(|a, b| a.key == b.key) {
        let judged = match is_possible_register(of_key) {
            true => "possible",
            false => "impossible",
        };
        let path = file(format!("register-{}", of_key[0].key.replace(':', "-")));
        write(path, "register", judged, of_register(of_key))?;
    }
    Ok(files)
}

fn of_lock(ops: &[Op]) -> Vec<Value> {
    let line = |op: &Op| {
        let what = match op.what {
            What::Take => "take",
            What::End => "end",
            What::Refused => "refused",
            What::MayTake => "may-take",
            What::MayEnd => "may-end",
        };
        let until = (op.until != OPEN).then_some(op.until);
        json!({ "owner": op.owner, "op": what, "token": op.token, "call": op.from, "return": until })
    };
    ops.iter().map(line).collect()
}

fn of_register(writes: &[Write]) -> Vec<Value> {
    let line = |write: &Write| {
        json!({
            "owner": write.holder, "op": "write", "token": write.token, "accepted": write.accepted,
            "call": write.asked, "return": write.answered,
        })
    };
    writes.iter().map(line).collect()
}

/// Judges the writes of one register by the numbers that it gave them. They are in the order of these numbers.
fn is_possible_register(writes: &[Write]) -> bool {
    let accepted: Vec<&Write> = writes.iter().filter(|write| write.accepted).collect();
    // Each takes effect after all before it have been asked for.
    let mut asked = 0;
    let after: Vec<u64> = accepted
        .iter()
        .map(|write| {
            asked = write.asked.max(asked);
            asked
        })
        .collect();
    let in_time = accepted
        .iter()
        .zip(&after)
        .all(|(write, after)| *after <= write.answered);
    let rise = accepted.is_sorted_by_key(|write| write.token);
    let has_reason = |refused: &Write| {
        let mut higher = accepted.iter().zip(&after);
        higher.any(|(it, after)| it.token > refused.token && *after <= refused.answered)
    };
    in_time
        && rise
        && writes
            .iter()
            .filter(|write| !write.accepted)
            .all(has_reason)
}

/// Returns histories that are wrong in one place each.
fn wrong_ones(ops: &[Op], rng: &mut Rng) -> Vec<Vec<Op>> {
    let is_wrong = |history: &Vec<Op>| matches!(search(history, STATES), Verdict::Impossible(..));
    let wrong = (0..WRONG_ONES).filter_map(|number| {
        let mut tried = (0..TRIES).filter_map(|_| spoiled(ops, number, rng));
        tried.find(is_wrong)
    });
    wrong.collect()
}

/// Spoils a history in one of several ways.
fn spoiled(ops: &[Op], way: usize, rng: &mut Rng) -> Option<Vec<Op>> {
    let mut spoiled = ops.to_vec();
    let ended = |take: &Op| {
        ops.iter()
            .find(|op| op.what == What::End && op.owner == take.owner)
    };
    let takes: Vec<&Op> = ops.iter().filter(|op| op.what == What::Take).collect();
    let take = *rng.choice(&takes)?;
    match way % 4 {
        // A hold that never ends.
        0 => spoiled.retain(|op| op.what != What::End || op.owner != take.owner),
        // Somebody else has the lock while its holder is certain.
        1 => {
            let end = ended(take)?;
            let (from, until) = (take.until + 1, end.from.checked_sub(1)?);
            let owner = ops.iter().map(|op| op.owner).max()? + 1;
            for what in [What::Take, What::End] {
                let token = None;
                spoiled.push(Op {
                    owner,
                    what,
                    token,
                    from,
                    until,
                });
            }
        }
        // A token that falls.
        2 => {
            let earlier = takes.iter().filter(|other| other.until < take.from);
            let token = earlier
                .filter_map(|other| other.token)
                .max()?
                .checked_sub(1)?;
            let same = |op: &&mut Op| op.what == What::Take && op.owner == take.owner;
            spoiled.iter_mut().find(same)?.token = Some(token);
        }
        // A refusal while nobody has the lock.
        _ => {
            let end = ended(take)?;
            let next = takes.iter().filter(|other| other.from > end.until);
            let until = next.map(|other| other.from).min()?.checked_sub(1)?;
            let owner = ops.iter().map(|op| op.owner).max()? + 1;
            let (what, token, from) = (What::Refused, None, end.until.checked_add(1)?);
            spoiled.push(Op {
                owner,
                what,
                token,
                from,
                until,
            });
        }
    }
    let are_in_order = spoiled.iter().all(|op| op.from <= op.until);
    are_in_order.then_some(spoiled)
}
