//! The checks beside those that torture has, and what they found.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::time::Duration;

use tests::judge::order::{self, Order};
use tests::judge::{
    Finding, Log, SIMULATED, Terms, findings, histories, overtaken, unused_while_waited_for,
};

use crate::body::{Alone, Use};
use crate::plan::Plan;
use crate::work::Registers;

/// What became of one seed.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) findings: Vec<Finding>,
    /// The acquires and releases that there were.
    pub(crate) operations: u64,
    pub(crate) messages: u64,
    pub(crate) lasted: Duration,
    /// A digest of everything that was said.
    pub(crate) trace: u64,
    order: Option<Order>,
}

impl Verdict {
    pub(crate) fn new() -> Self {
        Self {
            findings: Vec::new(),
            operations: 0,
            messages: 0,
            lasted: Duration::ZERO,
            trace: 0,
            order: None,
        }
    }

    pub(crate) fn find(&mut self, check: &'static str, what: Vec<String>) {
        self.take_in(Finding::of(check, what));
    }

    fn take_in(&mut self, findings: impl IntoIterator<Item = Finding>) {
        for finding in findings {
            let Finding { check, .. } = finding;
            assert!(SIMULATED.contains(&check), "`{check}` is in no list");
            self.findings.push(finding);
        }
    }
}

/// Judges everything that was said.
pub(crate) fn judge(
    verdict: &mut Verdict,
    log: &Log,
    plan: &Plan,
    registers: &Registers,
    alone: &Alone,
) {
    let terms = plan.terms();
    if plan.forgets_one_key() {
        // The others have nothing to do with that.
        let mut others = log.clone();
        let forgotten = others.split_off(|key| plan.is_forgotten_alone(key));
        let lax = Terms {
            loses_locks: true,
            forgets: true,
            ..terms
        };
        verdict.take_in(findings(&others, &terms));
        verdict.take_in(findings(&forgotten, &lax));
    } else {
        verdict.take_in(findings(log, &terms));
    }
    if !terms.loses_locks {
        let lost = registers.lost_updates().into_iter();
        let lost = lost.filter(|(key, lost)| {
            *lost > 0 && !log.doubts.contains(key) && !plan.is_forgotten_alone(key)
        });
        let lost = lost.map(|(key, lost)| format!("`{key}` lost {lost} updates"));
        verdict.find("counter", lost.collect());
    }
    // A quorum also refuses when no one has a majority.
    if !terms.loses_locks && plan.stores == 1 && !plan.is_forgotten_alone("try-1") {
        let order = order::order(&order::operations(&log.tries, &log.killed));
        if let Order::None(what) = &order {
            verdict.find("order", vec![what.clone()]);
        }
        verdict.order = Some(order);
    }
    let unused = unused_while_waited_for(log, |key| plan.longest_rest(key));
    verdict.find("rest", unused);
    verdict.find("queue", overtaken(log, |one, other| plan.order(one, other)));
    verdict.find("healthy", slowed(alone, plan));
    verdict.operations = log.operations();
    let mut digest = DefaultHasher::new();
    for hold in log.all_holds() {
        hold.to_string().hash(&mut digest);
    }
    format!("{:?} {:?} {:?}", log.refusals, log.ends, log.losses).hash(&mut digest);
    format!("{:?} {:?} {:?}", log.writes, log.tries, log.waits).hash(&mut digest);
    verdict.trace = digest.finish();
}

/// Returns what went wrong with keys that one process uses alone, while nothing struck that process or the store.
fn slowed(alone: &Alone, plan: &Plan) -> Vec<String> {
    let Some(bound) = plan.longest_request() else {
        return Vec::new();
    };
    let wrong = |use_of: &Use| {
        let Use {
            asked,
            granted,
            leaving,
            ended,
            ..
        } = use_of;
        let took = (*granted - *asked).max(*ended - *leaving);
        took > bound || use_of.went != Ok(())
    };
    let uses = alone.undisturbed().into_iter();
    uses.filter(wrong)
        .map(|use_of| format!("not within {bound:?}, or not at all: {use_of:?}"))
        .collect()
}

impl Verdict {
    /// Writes what was said into a folder, for another judge.
    pub(crate) fn write_histories(&self, folder: &Path, seed: u64, log: &Log) {
        let (name, what) = (
            format!("simulated-{seed}"),
            format!("simulation, seed {seed}"),
        );
        let written = histories::write(folder, &name, &what, log, self.order.as_ref());
        written.expect("the histories are written");
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            operations,
            messages,
            lasted,
            trace,
            ..
        } = self;
        write!(
            f,
            "{operations} operations, {messages} messages, {} ms, trace {trace:016x}",
            lasted.as_millis()
        )?;
        for finding in &self.findings {
            write!(f, "\n  {finding}")?;
        }
        Ok(())
    }
}
