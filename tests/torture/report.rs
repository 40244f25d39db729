//! The table that a person reads.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::delays::{TAKEOVER, may_be_late};
use crate::round::Outcome;
use crate::site::Topology;
use tests::judge::{names, order::Order};

/// The results of all rounds of one fault.
#[derive(Default)]
struct Row {
    rounds: u64,
    failed: u64,
    operations: u64,
    acquired: u64,
    overlaps: usize,
    longest: Duration,
    told: usize,
    lost_updates: u64,
    losses: usize,
    stale_tries: u64,
    recoveries: Vec<Duration>,
    fair_recoveries: Vec<Duration>,
    own_recoveries: Vec<Duration>,
    takeovers: Vec<Duration>,
    gaps: Vec<Duration>,
    /// The operations of rounds in which no overlap was allowed.
    strict_operations: u64,
    strict_overlaps: usize,
    /// The number of searches for one order of events, and of those that were given up.
    orders: usize,
    undecided: usize,
}

impl Row {
    fn longest_of(&self) -> Vec<Duration> {
        (self.overlaps > 0)
            .then_some(self.longest)
            .into_iter()
            .collect()
    }
}

/// All rounds so far.
#[derive(Default)]
pub(crate) struct Report {
    rows: BTreeMap<(Topology, String), Row>,
    total: Row,
}

impl Report {
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        let name = if outcome.name.contains('+') {
            "two at once"
        } else {
            &outcome.name
        };
        let key = (outcome.workload.topology, name.to_owned());
        for row in [self.rows.entry(key).or_default(), &mut self.total] {
            row.rounds += 1;
            row.failed += u64::from(!outcome.findings.is_empty());
            row.operations += outcome.log.operations();
            row.acquired += outcome.log.holds.len() as u64;
            row.overlaps += outcome.overlaps.len();
            if outcome.strict {
                row.strict_operations += outcome.log.operations();
                row.strict_overlaps += outcome.overlaps.len();
            }
            row.orders += usize::from(outcome.order.is_some());
            row.undecided += usize::from(outcome.order == Some(Order::Undecided));
            let longest = outcome.overlaps.iter().copied().max().unwrap_or_default();
            row.told += outcome.told;
            row.lost_updates += outcome.lost_updates;
            row.longest = row.longest.max(longest);
            row.own_recoveries.extend(&outcome.own_recoveries);
            row.takeovers.extend(&outcome.takeovers);
            row.gaps.extend(&outcome.gaps);
            row.losses += outcome.log.losses.len();
            row.stale_tries += outcome.log.stale_tries();
            for ((key, _), time) in &outcome.recoveries {
                if names::has_queue(key) {
                    row.fair_recoveries.push(*time);
                } else {
                    row.recoveries.push(*time);
                }
            }
        }
    }

    /// Returns whether every round was as it has to be, and all of them together.
    pub(crate) fn is_good(&self) -> bool {
        self.total.failed == 0 && self.late_takeovers().is_none()
    }

    /// Returns how many takeovers were late, if they are more than may be.
    fn late_takeovers(&self) -> Option<usize> {
        let times = &self.total.takeovers;
        let late = times.iter().filter(|time| **time > TAKEOVER).count();
        (late > may_be_late(times.len())).then_some(late)
    }

    /// Returns the table as Markdown.
    pub(crate) fn table(&self) -> String {
        let mut table = String::from(
            "| topology | fault | rounds | failed | operations | acquired | overlaps | longest | of them told | losses signalled | stale writes refused | updates lost without tokens | recovery p50 | p99 | fair p50 | p99 | topology's own p50 | p99 |\n\
             | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        let rows = self
            .rows
            .iter()
            .map(|((topology, name), row)| (topology.name(), name.as_str(), row));
        for (topology, name, row) in rows.chain([("**all**", "", &self.total)]) {
            let _ = writeln!(
                table,
                "| {topology} | {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                row.rounds,
                row.failed,
                row.operations,
                row.acquired,
                row.overlaps,
                percentile(&row.longest_of(), 100),
                row.told,
                row.losses,
                row.stale_tries,
                row.lost_updates,
                percentile(&row.recoveries, 50),
                percentile(&row.recoveries, 99),
                percentile(&row.fair_recoveries, 50),
                percentile(&row.fair_recoveries, 99),
                percentile(&row.own_recoveries, 50),
                percentile(&row.own_recoveries, 99),
            );
        }
        table
    }

    /// Returns the results for which the table has no column.
    pub(crate) fn bounds(&self) -> String {
        let line = |what: &str, times: &[Duration], bound: &str| {
            let [p50, p99, most] = [50, 99, 100].map(|percent| percentile(times, percent));
            let number = times.len();
            format!(
                "- {what}: {number} times, p50 {p50}, p99 {p99}, at most {most} (promised: {bound})\n"
            )
        };
        let Row {
            takeovers,
            gaps,
            orders,
            undecided,
            ..
        } = &self.total;
        let stale = self.total.stale_tries;
        [
            line(
                "had by the next one after a killed holder's lease was over",
                takeovers,
                "250 ms at p99, or the run failed",
            ),
            line(
                "free, though wanted, while no message arrived",
                gaps,
                "1.2 s and a round trip, or the round failed",
            ),
            format!(
                "- stale writes accepted by the register: 0 of {stale} tried, or the round failed\n"
            ),
            format!(
                "- searches for one order of all that was said of a mutex: {orders}, {undecided} of them given up \
                 undecided\n"
            ),
        ]
        .concat()
    }

    /// Returns a summary in one line.
    pub(crate) fn summary(&self) -> String {
        let Row {
            rounds,
            failed,
            operations,
            overlaps,
            losses,
            stale_tries,
            strict_operations,
            strict_overlaps,
            ..
        } = &self.total;
        let late = self.late_takeovers().map_or(String::new(), |late| {
            format!("; {late} TAKEOVERS LATER THAN {TAKEOVER:?}")
        });
        format!(
            "{rounds} rounds of {} kinds, {failed} failed; {operations} operations, {overlaps} overlaps, of these \
             {strict_operations} and {strict_overlaps} where the store loses no lock; \
             {losses} losses signalled, {stale_tries} stale writes refused{late}",
            self.rows.len()
        )
    }
}

fn percentile(times: &[Duration], percent: usize) -> String {
    let mut times = times.to_vec();
    times.sort();
    let index = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times
        .get(index)
        .map_or("–".to_owned(), |time| format!("{} ms", time.as_millis()))
}
