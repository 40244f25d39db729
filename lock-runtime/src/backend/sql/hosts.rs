//! The hosts of a URL, of which one is the primary.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::backend::Fault;

/// The settings for each host that a client may connect to, one or more.
#[derive(Clone)]
pub(crate) struct Hosts<T> {
    each: Vec<T>,
    /// The index of the host that served last. It is asked first.
    last: Arc<AtomicUsize>,
}

impl<T: Clone> Hosts<T> {
    pub(crate) fn new(each: Vec<T>) -> Hosts<T> {
        Hosts {
            each,
            last: Arc::default(),
        }
    }

    pub(crate) fn each(&self) -> &[T] {
        &self.each
    }

    /// Connects to the first host that can be written to, within `timeout`. Begins at the host that served last, or
    /// with `at_any` at a random one. Each host has its share of the time, so that one that is frozen does not keep the
    /// others from being asked.
    pub(crate) async fn connect<C, F>(
        &self,
        at_any: bool,
        timeout: Duration,
        shown: impl Fn(&T) -> String,
        connect: impl Fn(T) -> F,
    ) -> Result<C, Fault>
    where
        F: Future<Output = Result<C, Fault>>,
    {
        let count = self.each.len();
        let first = match at_any {
            true => fastrand::usize(..count),
            false => self.last.load(Ordering::Relaxed),
        };
        let share = timeout / u32::try_from(count).unwrap_or(u32::MAX);
        let mut refused = Vec::new();
        for index in (first..count).chain(0..first) {
            let host = &self.each[index];
            let connecting = connect(host.clone());
            let fault = match tokio::time::timeout(share, connecting).await {
                Ok(Ok(connected)) => {
                    self.last.store(index, Ordering::Relaxed);
                    return Ok(connected);
                }
                Ok(Err(fault)) => fault,
                Err(_) => Fault::not_done(format!("no connection within {share:?}")),
            };
            refused.push((shown(host), fault));
        }
        Err(together(refused))
    }
}

/// Returns the error where no host could be connected to: the reasons of all of them if a retry can help with one,
/// otherwise the last reason.
fn together(mut refused: Vec<(String, Fault)>) -> Fault {
    let mut hopeful = refused
        .iter()
        .map(|(_, fault)| matches!(fault, Fault::NotDone(_)));
    if refused.len() > 1 && hopeful.any(|hopeful| hopeful) {
        let all: Vec<String> = refused
            .iter()
            .map(|(host, fault)| format!("{host}: {fault}"))
            .collect();
        return Fault::not_done(all.join("; "));
    }
    let last = refused.pop().map(|(_, fault)| fault);
    last.unwrap_or_else(|| Fault::not_done("there is no host"))
}
