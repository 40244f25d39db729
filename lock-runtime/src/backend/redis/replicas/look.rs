//! Are the holds at this server? Asked by the scripts that renew, which only look if they are given no lease.

use redis::aio::MultiplexedConnection;

use super::super::exclusive::field;
use super::super::permit_scripts::RenewPermits;
use super::super::permits::{ids, leases};
use super::super::read_write::timeout_key;
use super::super::rw_scripts::ReadRenew;
use super::super::script::{self, Manner, Script};
use super::super::scripts::Renew;
use crate::backend::{Fault, Renewal, Renewed};
use crate::kind::Kind;

/// Items of a script, and which of the holds each of them is.
struct Part<T> {
    items: Vec<T>,
    holds: Vec<usize>,
}

impl<T> Part<T> {
    fn new() -> Part<T> {
        Part {
            items: Vec::new(),
            holds: Vec::new(),
        }
    }

    fn add(&mut self, hold: usize, item: T) {
        self.items.push(item);
        self.holds.push(hold);
    }

    /// The holds that are there.
    async fn ask<S: Script<Reply = Vec<Renewed>>>(
        &self,
        connection: &MultiplexedConnection,
        script: S,
    ) -> Result<Vec<usize>, Fault> {
        if self.items.is_empty() {
            return Ok(Vec::new());
        }
        let answers = script::run(&mut connection.clone(), &script, Manner::PLAIN).await?;
        let answers = self.holds.iter().zip(answers);
        let held = answers.filter(|(_, answer)| *answer == Renewed::Held);
        Ok(held.map(|(hold, _)| *hold).collect())
    }
}

/// Which of the holds are there, in their order. Those with a term are extended to it.
pub(super) async fn look(
    connection: &MultiplexedConnection,
    holds: &[Renewal],
) -> Result<Vec<bool>, Fault> {
    let (mut hashes, mut reads, mut permits) = (Part::new(), Part::new(), Part::new());
    for (at, hold) in holds.iter().enumerate() {
        let Renewal { key, holder, .. } = hold;
        let ttl = hold.term.map_or(0, |term| term.millis());
        match key.kind() {
            Kind::Mutex | Kind::Fenced | Kind::Fair | Kind::Write => {
                hashes.add(at, (key.raw(), field(key, *holder), ttl));
            }
            Kind::Read => {
                let timeout = timeout_key(key, *holder);
                reads.add(at, (key.raw(), timeout, holder.text(), ttl));
            }
            // They are taken and given back together: to look, one stands for all.
            Kind::Permits => {
                let number = hold.term.map_or(1, |_| hold.permits);
                permits.add(at, (leases(key), ids(*holder, number), ttl));
            }
        }
    }
    let (hashes, reads, permits) = tokio::join!(
        hashes.ask(
            connection,
            Renew {
                items: &hashes.items
            }
        ),
        reads.ask(
            connection,
            ReadRenew {
                items: &reads.items
            }
        ),
        permits.ask(
            connection,
            RenewPermits {
                items: &permits.items
            }
        ),
    );
    let mut held = vec![false; holds.len()];
    for at in hashes?.into_iter().chain(reads?).chain(permits?) {
        held[at] = true;
    }
    Ok(held)
}
