//! Renewals in a cluster. A script has keys of one slot only, so each slot has scripts of its own. All are sent at
//! once.

use std::sync::Arc;

use super::Cluster;
use crate::backend::redis::kinds::renewals::{RenewalPart, RenewalTimes, all, by_script, in_order};
use crate::backend::redis::router::Router;
use crate::backend::{Fault, Renewal, Renewed};
use crate::values::{Key, clock};

impl Cluster {
    /// Renews each slot's part by itself, because the failure of one slot says nothing about the others. The answers
    /// are in the order of the batch.
    pub(in super::super) async fn renew(
        self: &Arc<Self>,
        router: &Router,
        batch: &[Renewal],
        times: RenewalTimes,
    ) -> Result<Vec<Renewed>, Fault> {
        let parts = by_script(batch, Key::slot);
        let renewals = parts
            .iter()
            .map(|part| self.renew_part(router, batch, part, times));
        let answered = all(renewals.collect()).await;
        in_order(batch.len(), parts.iter().map(Vec::as_slice), answered)
    }

    /// Renews the holds of one slot. While the slot moves, its keys may be at two nodes. The holds are then renewed one
    /// by one, without a pause, because their leases may end.
    fn renew_part<'a>(
        self: &'a Arc<Self>,
        router: &'a Router,
        batch: &'a [Renewal],
        part: &'a [usize],
        times: RenewalTimes,
    ) -> RenewalPart<'a> {
        Box::pin(self.renew_slot(router, batch, part, times))
    }

    async fn renew_slot(
        self: &Arc<Self>,
        router: &Router,
        batch: &[Renewal],
        part: &[usize],
        times: RenewalTimes,
    ) -> Result<Vec<Renewed>, Fault> {
        let items: Vec<&Renewal> = part.iter().filter_map(|&at| batch.get(at)).collect();
        let Some(first) = items.first() else {
            return Ok(Vec::new());
        };
        let slot = first.key.slot();
        let (mut live, mut now) = self.route(slot, clock::now(), times.usual).await?;
        loop {
            let answer = router.renew_on(&live, &items, now, times).await;
            let Some(redirect) = router.redirect(&answer) else {
                return answer;
            };
            if redirect.may_split() && items.len() > 1 {
                let alone = part.iter().map(std::slice::from_ref);
                let renewals = alone.map(|part| self.renew_part(router, batch, part, times));
                let answered = all(renewals.collect()).await;
                let order: Vec<usize> = (0..part.len()).collect();
                return in_order(part.len(), order.chunks(1), answered);
            }
            (live, now) = self.follow(redirect, &live, slot, times.usual).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::holder::HolderIds;
    use crate::values::kind::Kind;
    use crate::values::name::LockName;

    #[test]
    fn a_batch_is_cut_by_slot_and_by_script() {
        let ids = HolderIds::new();
        let renewal = |name: &str, kind| Renewal {
            key: Arc::new(Key::new("", &LockName::from(name), kind).unwrap()),
            holder: ids.fresh(),
            permits: 1,
            ttl: None,
            waits: false,
        };
        let batch = [
            renewal("{a}1", Kind::Mutex),
            renewal("{b}1", Kind::Mutex),
            renewal("{a}2", Kind::Write),
            renewal("{a}3", Kind::Read),
            renewal("{a}4", Kind::Semaphore),
            renewal("{a}5", Kind::Fair),
        ];
        let mut parts = by_script(&batch, Key::slot);
        parts.sort();
        assert_eq!(parts, [vec![0, 2, 5], vec![1], vec![3], vec![4]]);
    }

    #[test]
    fn one_failure_says_nothing_about_the_others() {
        let fault = || Err(Fault::not_done("x"));
        let parts = [vec![2, 0], vec![1]];
        let renewed = |first, second| {
            let answered = vec![first, second];
            in_order(3, parts.iter().map(Vec::as_slice), answered)
        };
        let some = renewed(Ok(vec![Renewed::Held, Renewed::NotHeld]), fault());
        let expected = [Renewed::NotHeld, Renewed::Unknown, Renewed::Held];
        assert_eq!(some.unwrap(), expected);
        assert!(renewed(fault(), fault()).is_err());
    }
}
