//! What counts names no holder, so it cannot be undone at the nodes of a minority: a quorum keeps no counters.

use std::time::Duration;

use super::QuorumBackend;
use super::listen::QuorumListener;
use crate::backend::{Counters, Listen, Reply, Tally};
use crate::key::Key;

impl Counters for QuorumBackend {
    fn set<'a>(&'a self, _: Tally<'a>, _: u64, _: Duration) -> Reply<'a, bool> {
        QuorumBackend::only_mutex()
    }

    fn limit<'a>(&'a self, _: &'a Key, _: u64, _: Duration) -> Reply<'a, ()> {
        QuorumBackend::only_mutex()
    }

    fn read<'a>(&'a self, _: Tally<'a>, _: Duration) -> Reply<'a, Option<i64>> {
        QuorumBackend::only_mutex()
    }

    fn add<'a>(&'a self, _: &'a Key, _: i64, _: Duration) -> Reply<'a, ()> {
        QuorumBackend::only_mutex()
    }

    fn take<'a>(&'a self, _: &'a Key, _: u32, _: Duration) -> Reply<'a, bool> {
        QuorumBackend::only_mutex()
    }

    fn count_down<'a>(&'a self, _: &'a Key, _: Duration) -> Reply<'a, u64> {
        QuorumBackend::only_mutex()
    }

    fn delete<'a>(&'a self, _: Tally<'a>, _: Duration) -> Reply<'a, bool> {
        QuorumBackend::only_mutex()
    }

    fn listen_to(&self, tally: Tally<'_>) -> Box<dyn Listen> {
        let nodes = self.inner.nodes.iter();
        let ears = nodes.map(|node| node.backend.listen_to(tally));
        Box::new(QuorumListener::new(ears.collect()))
    }
}
