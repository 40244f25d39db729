//! A hold that changes hands at every node where its old holder has it. Nobody else gets a vote in between, so local
//! waiters never split the votes among themselves.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Inner, gone};
use crate::backend::quorum::majority::{majority, no_majority};
use crate::backend::quorum::request::NodeRequest;
use crate::backend::quorum::vote::Ballot;
use crate::backend::{Fault, Granted, HandedOver, Spare};
use crate::values::clock::Moment;
use crate::values::error::StoreError;
use crate::values::fence::SPARE_TOKENS;
use crate::values::holder::HolderId;

pub(super) async fn hand_over(
    inner: &Arc<Inner>,
    from: HolderId,
    to: NodeRequest,
) -> Result<HandedOver, Fault> {
    let nodes = inner.nodes.len();
    let needed = majority(nodes);
    inner.cut_off(from);
    let ballot = Ballot::new(vec![to.clone()]);
    // A release of the new holder, however soon it comes, must find the nodes that are behind.
    inner.goes_on(to.holder, &ballot);
    let (told, mut answers) = mpsc::unbounded_channel();
    for node in 0..nodes {
        let (inner, ballot, told) = (inner.clone(), ballot.clone(), told.clone());
        let (from, to) = (to.by(from), to.clone());
        let pending = inner.pending.enter();
        inner.handle.clone().spawn(async move {
            let answer = at_one_node(&inner, &ballot, node, from, to).await;
            drop(pending);
            let _ = told.send((node, answer));
        });
    }
    drop(told);

    let (mut done, mut not_held, mut faults) = (0, 0, Vec::new());
    let mut sent_at: Option<Moment> = None;
    let mut strangers = Some(0);
    while done < needed && not_held < needed && done + not_held + faults.len() < nodes {
        let Some((node, answer)) = answers.recv().await else {
            faults.push((String::new(), gone()));
            continue;
        };
        match answer {
            Ok(HandedOver::Done {
                granted,
                strangers: seen,
                ..
            }) => {
                done += 1;
                sent_at = Some(sent_at.map_or(granted.sent_at, |at| at.earlier(granted.sent_at)));
                // Each waiter listens at all nodes.
                strangers = Option::zip(strangers, seen).map(|(most, seen)| seen.max(most));
            }
            Ok(HandedOver::NotHeld) => not_held += 1,
            Err(fault) => {
                let shown = inner.nodes.get(node).map(|node| node.shown.clone());
                faults.push((shown.unwrap_or_default(), fault));
            }
        }
    }
    if not_held >= needed {
        // A minority may have named the new holder, which will never know.
        for node in ballot.withdraw() {
            inner.errand(node, to.clone(), to.over());
        }
        return Ok(HandedOver::NotHeld);
    }
    match sent_at {
        Some(sent_at) if done >= needed && to.ttl.validity(sent_at.elapsed()).is_some() => {
            Ok(HandedOver::Done {
                granted: Granted {
                    token: None,
                    sent_at,
                },
                strangers,
                // Confirmed by a majority, each time.
                spare: Spare::Nothing,
            })
        }
        // Some nodes may name the new holder, some the old one: the caller gives back both.
        Some(_) => Err(Fault::Unknown(StoreError::new(
            "fewer than a majority of the quorum handed the lock over in time",
        ))),
        None => Err(no_majority(nodes, &faults)),
    }
}

async fn at_one_node(
    inner: &Arc<Inner>,
    ballot: &Ballot,
    index: usize,
    from: NodeRequest,
    to: NodeRequest,
) -> Result<HandedOver, Fault> {
    let Some(node) = inner.nodes.get(index) else {
        return Err(gone());
    };
    let answer = match node.backend.hand_off() {
        Some(store) if !ballot.is_withdrawn() => {
            store
                .hand_over(from.holder, to.request(), SPARE_TOKENS)
                .await
        }
        _ => Err(gone()),
    };
    match &answer {
        Ok(HandedOver::Done { .. }) => {
            if !ballot.keep(index) {
                // The new holder has given the lock back meanwhile, maybe before this node named it.
                let over = to.over();
                inner.errand(index, to, over);
            }
        }
        Ok(HandedOver::NotHeld) => {}
        // The old one may still stand there, and nobody else will ask.
        Err(_) => {
            let over = from.over();
            inner.errand(index, from, over);
            // The request may still arrive, and the new holder's release have been there before it.
            if ballot.is_withdrawn() {
                let over = to.over();
                inner.errand(index, to, over);
            }
        }
    }
    answer
}
