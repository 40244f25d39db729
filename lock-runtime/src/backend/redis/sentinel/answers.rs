//! The choice of one address to try, from the answers of many sentinels. It does no I/O.

use std::time::Duration;

use crate::backend::Fault;
use crate::backend::kit::hosts::Address;
use crate::values::Moment;

/// The time for which a known failover outranks a majority of sentinels that do not report it. Sentinels inform each
/// other of a failover within two seconds. After this time, the sentinels may have been set up anew and count from
/// zero.
pub(super) const NEWS: Duration = Duration::from_secs(30);

/// The newest master that any sentinel has named.
#[derive(Clone, Debug)]
pub(super) struct KnownMaster {
    pub(super) address: Address,
    pub(super) epoch: Option<u64>,
    pub(super) at: Moment,
    /// The time since which commands have had no connection, and no attempt has reached this master.
    pub(super) unserved_since: Option<Moment>,
}

impl KnownMaster {
    /// Returns `true` once commands have had no connection for so long that another master may take its place.
    pub(super) fn is_away(&self) -> bool {
        self.unserved_since
            .is_some_and(|since| since.elapsed() >= NEWS)
    }
}

/// The master to connect to, as the sentinels named it.
#[derive(Debug)]
pub(in super::super) struct NamedMaster {
    pub(in super::super) address: Address,
    pub(super) epoch: Option<u64>,
    /// The sentinels that named it, for error messages.
    pub(in super::super) by: String,
}

/// The answer of a sentinel, or `None` if it does not know the service.
pub(super) type SentinelAnswer = Option<SentinelReport>;

/// What a sentinel says of the service.
#[derive(Debug)]
pub(super) struct SentinelReport {
    /// The address of the master.
    pub(super) address: Address,
    /// The number of the failover that made it the master; a later failover has a higher number. `None` if the sentinel does
    /// not report it.
    pub(super) epoch: Option<u64>,
    /// The number of other sentinels that it knows, which need not be reached now.
    pub(super) others: usize,
}

/// A sentinel, and what it said.
pub(super) type SentinelReply = (String, Result<SentinelAnswer, Fault>);

/// Returns the address of the latest failover, of those that some of the `asked` sentinels name. If there are several,
/// returns the address that most sentinels name.
///
/// The known master outranks a minority of the sentinels that there are, which may be cut off with an old master: one host of
/// the URL may be the name of several sentinels, of which one has answered. But if the others never come back,
/// and these sentinels count from zero, it would outrank them for ever. So once it has been away for [`NEWS`], what the
/// sentinels name comes second: it is to be tried whenever the known master has failed.
pub(super) fn choose(
    asked: usize,
    answers: &[SentinelReply],
    service: &str,
    known: Option<&KnownMaster>,
) -> Result<(NamedMaster, Option<NamedMaster>), Fault> {
    let named = answers.iter().filter_map(|(sentinel, answer)| {
        let report = answer.as_ref().ok()?.as_ref()?;
        Some((sentinel, report))
    });
    let votes = |address: &Address| {
        named
            .clone()
            .filter(|(_, report)| report.address == *address)
            .count()
    };
    let best = named.clone().max_by_key(|(_, report)| {
        // Sentinels may give one master two names for a while, and each change of the name costs all connections.
        let is_known = known.is_some_and(|known| {
            known.epoch.is_some() && known.epoch == report.epoch && known.address == report.address
        });
        (report.epoch, is_known, votes(&report.address))
    });
    let Some((sentinel, best)) = best else {
        return Err(no_master(asked, answers, service));
    };
    let all = named
        .clone()
        .map(|(_, report)| report.others.saturating_add(1))
        .fold(asked, usize::max);
    let epoch = best.epoch;
    let master = NamedMaster {
        address: best.address.clone(),
        epoch,
        by: format!("named by sentinel {sentinel}"),
    };
    if let Some(known) = known
        && known.epoch > epoch
        && (known.at.elapsed() < NEWS || named.count() * 2 <= all)
    {
        let later = NamedMaster {
            address: known.address.clone(),
            epoch: known.epoch,
            by: "known from a later failover".to_owned(),
        };
        let is_another = known.is_away() && master.address != known.address;
        return Ok((later, is_another.then_some(master)));
    }
    Ok((master, None))
}

/// Returns the fault of answers none of which names a master.
fn no_master(asked: usize, answers: &[SentinelReply], service: &str) -> Fault {
    let mut parts: Vec<String> = answers
        .iter()
        .map(|(sentinel, answer)| match answer {
            Ok(_) => format!("{sentinel}: it does not know the service"),
            Err(fault) => format!("{sentinel}: {fault}"),
        })
        .collect();
    let unheard = asked - answers.len();
    if unheard > 0 {
        parts.push(format!("{unheard} gave no answer in time"));
    }
    let text = format!(
        "no sentinel names the master of the service `{service}` ({})",
        parts.join("; ")
    );
    let is_lasting =
        |(_, answer): &SentinelReply| matches!(answer, Ok(_) | Err(Fault::Impossible(_)));
    let is_denied = |(_, answer): &SentinelReply| matches!(answer, Err(Fault::Denied(_)));
    if unheard == 0 && answers.iter().all(is_lasting) {
        Fault::Impossible(text)
    } else if answers.iter().any(is_denied) {
        Fault::denied(text)
    } else {
        Fault::not_done(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::clock;

    fn answers(named: &[(&str, Option<u64>)]) -> Vec<SentinelReply> {
        let answer = |(address, epoch): &(&str, _)| {
            Ok(Some(SentinelReport {
                address: (*address).into(),
                epoch: *epoch,
                others: 0,
            }))
        };
        let named = named.iter().map(answer);
        (0..)
            .map(|index: u8| format!("s{index}"))
            .zip(named)
            .collect()
    }

    fn known(address: &str, epoch: u64) -> KnownMaster {
        KnownMaster {
            address: address.into(),
            epoch: Some(epoch),
            at: clock::now(),
            unserved_since: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_latest_failover_outranks_a_majority() {
        let named = [("old:1", Some(3)), ("new:1", Some(4)), ("old:1", Some(3))];
        let (chosen, _) = choose(3, &answers(&named), "s", None).unwrap();
        assert_eq!(&*chosen.address, "new:1");
        assert_eq!(chosen.epoch, Some(4));
    }

    #[tokio::test(start_paused = true)]
    async fn without_epochs_the_majority_counts() {
        let named = [("a:1", None), ("b:1", None), ("b:1", None)];
        let (chosen, _) = choose(3, &answers(&named), "s", None).unwrap();
        assert_eq!(&*chosen.address, "b:1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_recent_failover_outranks_sentinels_that_do_not_report_it() {
        let named = [("old:1", Some(3)), ("old:1", Some(3))];
        let news = known("new:1", 4);
        let (chosen, _) = choose(3, &answers(&named), "s", Some(&news)).unwrap();
        assert_eq!(&*chosen.address, "new:1");
        tokio::time::advance(NEWS * 2).await;
        let (chosen, _) = choose(3, &answers(&named), "s", Some(&news)).unwrap();
        assert_eq!(&*chosen.address, "old:1", "the sentinels were set up anew");
        let (chosen, instead) = choose(5, &answers(&named), "s", Some(&news)).unwrap();
        assert_eq!(&*chosen.address, "new:1", "a minority may be cut off");
        assert!(instead.is_none(), "the known master was not away");
    }

    #[tokio::test(start_paused = true)]
    async fn a_minority_master_is_second_once_the_known_master_is_away() {
        let mut news = known("new:1", 4);
        let second = |news: &KnownMaster| {
            let answers = answers(&[("anew:1", Some(0))]);
            let (first, second) = choose(2, &answers, "s", Some(news)).unwrap();
            assert_eq!(&*first.address, "new:1", "it may be back");
            second.map(|named| (named.address.to_string(), named.epoch))
        };
        tokio::time::advance(NEWS * 2).await;
        news.unserved_since = Some(clock::now());
        assert_eq!(second(&news), None, "it may be back soon");
        tokio::time::advance(NEWS).await;
        assert_eq!(second(&news), Some(("anew:1".to_owned(), Some(0))));
        // News of another failover are of another master, which was not away.
        let news = known("newer:1", 5);
        let answers = answers(&[("anew:1", Some(0))]);
        let (_, second) = choose(2, &answers, "s", Some(&news)).unwrap();
        assert!(second.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_several_sentinels_behind_one_name_is_a_minority() {
        let news = known("new:1", 4);
        tokio::time::advance(NEWS * 2).await;
        let mut heard = answers(&[("old:1", Some(3))]);
        let mut chosen = |others| {
            let (_, answer) = &mut heard[0];
            let report = answer.as_mut().unwrap().as_mut().unwrap();
            report.others = others;
            let (chosen, _) = choose(1, &heard, "s", Some(&news)).unwrap();
            chosen.address.to_string()
        };
        assert_eq!(chosen(0), "old:1", "it was set up anew, alone");
        assert_eq!(chosen(2), "new:1");
    }

    #[test]
    fn a_failure_names_every_sentinel_and_the_service() {
        let answers = [
            ("one:1".to_owned(), Err(Fault::not_done("refused"))),
            ("two:2".to_owned(), Ok(None)),
        ];
        let Err(fault @ Fault::NotDone(_)) = choose(3, &answers, "mine", None) else {
            panic!()
        };
        let text = fault.to_string();
        for part in ["`mine`", "one:1: refused", "two:2", "1 gave no answer"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
