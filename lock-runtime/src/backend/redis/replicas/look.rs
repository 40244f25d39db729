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

/// Which of the holds are there, in their order.
pub(super) async fn look(
    connection: &MultiplexedConnection,
    holds: &[Renewal],
) -> Result<Vec<bool>, Fault> {
    let (mut hashes, mut reads, mut permits) = (Part::new(), Part::new(), Part::new());
    for (at, Renewal { key, holder, .. }) in holds.iter().enumerate() {
        match key.kind() {
            Kind::Mutex | Kind::Fenced | Kind::Fair | Kind::Write => {
                hashes.add(at, (key.raw(), field(key, *holder), 0));
            }
            Kind::Read => {
                reads.add(at, (key.raw(), timeout_key(key, *holder), holder.text(), 0));
            }
            // They are taken and given back together: one stands for all.
            Kind::Permits => permits.add(at, (leases(key), ids(*holder, 1), 0)),
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
