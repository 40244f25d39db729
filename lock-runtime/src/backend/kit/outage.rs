//! The log messages about an outage.

use crate::backend::Fault;
use crate::values::clock;

/// One outage: a warning at its beginning, a word at its end.
#[derive(Debug)]
pub(crate) struct Outage {
    what: &'static str,
    since: Option<tokio::time::Instant>,
}

impl Outage {
    pub(crate) fn new(what: &'static str) -> Outage {
        Outage { what, since: None }
    }

    /// What there was is lost.
    pub(crate) fn is_on(&mut self, server: &str, fault: &Fault) {
        if self.begins() {
            tracing::warn!(server, reason = %fault, "{} is lost; reconnecting", self.what);
        }
    }

    /// A new one cannot be had. That is no news while it is lost.
    #[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
    pub(crate) fn goes_on(&mut self, server: &str, fault: &Fault) {
        if self.begins() {
            tracing::warn!(server, reason = %fault, "{} cannot be had; trying again", self.what);
        }
    }

    fn begins(&mut self) -> bool {
        let begins = self.since.is_none();
        self.since.get_or_insert_with(clock::tick);
        begins
    }

    /// Ends the outage. Returns `true` if there was one.
    pub(crate) fn is_over(&mut self, server: &str) -> bool {
        let Some(since) = self.since.take() else {
            return false;
        };
        tracing::info!(server, after = ?since.elapsed(), "{} is there again", self.what);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_outage_is_over_once() {
        let mut outage = Outage::new("the connection");
        assert!(!outage.is_over("server"), "there was none");
        for _ in 0..2 {
            outage.is_on("server", &Fault::not_done("no answer"));
        }
        assert!(outage.is_over("server"));
        assert!(!outage.is_over("server"));
    }
}
