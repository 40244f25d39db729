//! The checks of a round, each with its name.

use tests::judge::{Finding, Log, Terms, names, overtaken, unused_while_waited_for};

use crate::delays;
use crate::keys;
use crate::resource::register;
use crate::round::{BUSY, Strike};
use crate::site::Site;

/// Runs the checks of a round.
pub(crate) fn all(log: &Log, site: &Site, terms: &Terms, strikes: &[Strike]) -> Vec<Finding> {
    let mut found = tests::judge::findings(log, terms);
    let mut find = |check, what| found.extend(Finding::of(check, what));
    if !terms.loses_locks {
        find("counter", counters(log, site));
    }
    if terms.calm {
        // With several processes at one key there is always somebody to wake.
        let silent = site.workload.topology.tells() && site.messages() == Some(0);
        let silence = silent.then(|| "no message passed".to_owned());
        find("wake-ups", silence.into_iter().collect());
        // Nobody waits long for a lock that another process keeps: it gives it up when it is asked.
        let bound = |key: &str| names::is_kept(key).then_some(delays::IN_PEACE);
        find("kept", unused_while_waited_for(log, bound));
        // Fair waiters have the lock in the order in which they asked for it. A client may get no processor before it asks.
        let fair = |key: &str| keys::FAIR.contains(&key).then_some(2 * BUSY);
        find("queue", overtaken(log, |first, _| fair(&first.key)));
        if site.workload.topology.tells() {
            find("change", delays::slow_changes(log, site.workload));
        }
    }
    find("bystander", bystanders(log, strikes));
    let takeovers = delays::takeovers(log, terms, strikes);
    find("takeover", delays::late_takeovers(&takeovers));
    find("gap", delays::long_gaps(log, site.workload, terms, strikes));
    found
}

/// Returns the losses of other locks, if only some locks are in trouble. Nobody may lose another one.
fn bystanders(log: &Log, strikes: &[Strike]) -> Vec<String> {
    if strikes.is_empty() || !strikes.iter().all(|strike| strike.spares_the_others) {
        return Vec::new();
    }
    let affected = strikes.iter().filter_map(|strike| strike.affected.as_ref());
    let is_affected = |key: &str| affected.clone().any(|keys| keys.contains(&key));
    let others = log.losses.iter().filter(|loss| !is_affected(&loss.key));
    others.map(|loss| format!("{loss:?}")).collect()
}

/// Returns the counters that lost updates. Every write of a counter added one, unless it may have come after the lease.
fn counters(log: &Log, site: &Site) -> Vec<String> {
    let all = lost_updates(site).into_iter();
    all.filter(|(key, lost)| *lost != 0 && !log.doubts.contains(*key))
        .map(|(key, lost)| format!("`{key}` lost {lost} updates"))
        .collect()
}

/// Returns how many increments each counter lost, as a resource does that looks at no tokens.
pub(crate) fn lost_updates(site: &Site) -> Vec<(&'static str, i64)> {
    let lost = |key: &'static str| {
        let number = |field| {
            let value: Option<i64> = site.resource.query(&["HGET", &register(key), field]);
            value.unwrap_or(0)
        };
        (key, number("writes") - number("value"))
    };
    site.workload.keys().into_iter().map(lost).collect()
}
