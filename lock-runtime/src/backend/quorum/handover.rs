//! A hold that changes hands at every node where its old holder has it. Nobody else gets a vote in between, so local
//! waiters never split the votes among themselves.

use std::sync::Arc;

use super::QuorumBackend;
use crate::backend::quorum::broadcast::Round;
use crate::backend::quorum::majority::majority;
use crate::backend::quorum::request::NodeRequest;
use crate::backend::quorum::vote::Grants;
use crate::backend::{Fault, FurtherTurns, Granted, HandedOver, HoldRef, Spare};
use crate::values::{HolderId, Moment, SPARE_TOKENS, clock};

pub(super) async fn hand_over(
    quorum: &Arc<QuorumBackend>,
    from: HolderId,
    to: NodeRequest,
) -> Result<HandedOver, Fault> {
    quorum.check_term(to.ttl)?;
    let needed = majority(quorum.nodes.len());
    quorum.cut_off(from);
    let grants = Grants::new(vec![to.clone()]);
    // A release by the new holder, however soon it comes, must find the nodes that have not answered yet.
    // Nothing undoes what a node has done for it without that release.
    quorum.goes_on(to.holder, &grants, clock::now());
    // The lease of the old holder may be longer than that of the new one.
    let old = NodeRequest::to_release(HoldRef::one(&to.key, from), to.timeout, quorum.longest);
    let mut round = Round::ask(quorum, to.timeout, |quorum, node| {
        let (grants, from, to) = (grants.clone(), old.clone(), to.clone());
        let pending = quorum.pending.enter();
        async move {
            let _pending = pending;
            at_one_node(&quorum, &grants, node, from, to).await
        }
    });
    let mut sent_at: Option<Moment> = None;
    let mut others = Some(0);
    let count = round.count(|answer| {
        let HandedOver::Done(granted, terms) = answer else {
            return false;
        };
        sent_at = Some(sent_at.map_or(granted.sent_at, |at| at.earlier(granted.sent_at)));
        // Each waiter listens at all nodes.
        others = Option::zip(others, terms.others).map(|(a, b)| a.max(b));
        true
    });
    let (done, not_held) = count.await;
    if not_held >= needed {
        // A minority may have named the new holder, and nothing else would release it there.
        for node in grants.withdraw() {
            quorum.errand(node, to.clone());
        }
        return Ok(HandedOver::NotHeld);
    }
    match sent_at {
        Some(sent_at) if done >= needed && to.ttl.validity(sent_at.elapsed()).is_some() => {
            let granted = Granted::leased(None, sent_at);
            let terms = FurtherTurns {
                others,
                // Every further hold has to be confirmed by a majority.
                spare: Spare::Nothing,
            };
            Ok(HandedOver::Done(granted, terms))
        }
        // Some nodes may name the new holder, some the old one: the caller gives back both. It may find that the old
        // holder holds nothing any more, because the nodes that failed have errands.
        _ => Err(Fault::unknown(
            "fewer than a majority of the quorum handed the lock over in time",
        )),
    }
}

async fn at_one_node(
    quorum: &Arc<QuorumBackend>,
    grants: &Arc<Grants>,
    index: usize,
    from: NodeRequest,
    to: NodeRequest,
) -> Result<HandedOver, Fault> {
    let answer = if grants.is_withdrawn() {
        Err(Grants::withdrawn())
    } else {
        let backend = &quorum.nodes[index].backend;
        let asked = backend.hand_over(from.holder, to.request(), SPARE_TOKENS);
        asked.await
    };
    match &answer {
        Ok(HandedOver::Done(..)) => {
            if !grants.keep(index) {
                // The new holder has given the lock back meanwhile, maybe before this node named it.
                quorum.errand(index, to);
            }
        }
        Ok(HandedOver::NotHeld) => {}
        // The node may still name the old holder, and nobody else will release it there. Until that is done, the request may
        // still arrive, and a release of the new holder may have been there before it.
        Err(_) => {
            let (handle, pending) = (quorum.handle.clone(), quorum.pending.enter());
            let (quorum, grants) = (quorum.clone(), grants.clone());
            handle.spawn(async move {
                quorum.give_back(index, &from).await;
                if grants.is_withdrawn() {
                    quorum.give_back(index, &to).await;
                }
                drop(pending);
            });
        }
    }
    answer
}
