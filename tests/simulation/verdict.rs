//! The checks beside those that torture has, and what they found.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::time::Duration;

use tests::judge::order::{self, Order};
use tests::judge::{Finding, Log, findings, histories, unused_while_waited_for};

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
        self.findings.extend(Finding::of(check, what));
    }
}

/// Judges everything that was said.
pub(crate) fn judge(verdict: &mut Verdict, log: &Log, plan: &Plan, registers: &Registers) {
    let terms = plan.terms();
    verdict.findings.extend(findings(log, &terms));
    if !terms.loses_locks {
        let lost = registers.lost_updates().into_iter();
        let lost = lost.filter(|(key, lost)| *lost > 0 && !log.doubts.contains(key));
        let lost = lost.map(|(key, lost)| format!("`{key}` lost {lost} updates"));
        verdict.find("counter", lost.collect());
    }
    // A quorum also refuses when no one has a majority.
    if !terms.loses_locks && plan.stores == 1 {
        let order = order::order(&order::operations(&log.tries, &log.killed));
        if let Order::None(what) = &order {
            verdict.find("order", vec![what.clone()]);
        }
        verdict.order = Some(order);
    }
    let unused = unused_while_waited_for(log, |key| plan.longest_rest(key));
    verdict.find("rest", unused);
    verdict.operations = log.operations();
    let mut digest = DefaultHasher::new();
    for hold in log.all_holds() {
        hold.to_string().hash(&mut digest);
    }
    format!("{:?} {:?} {:?}", log.refusals, log.ends, log.losses).hash(&mut digest);
    format!("{:?} {:?} {:?}", log.writes, log.tries, log.waits).hash(&mut digest);
    verdict.trace = digest.finish();
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
