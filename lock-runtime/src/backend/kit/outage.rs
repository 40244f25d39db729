//! The log messages of an outage.

use crate::backend::Fault;
use crate::values::clock;

/// One outage: a warning at its beginning, and a message at its end.
#[derive(Debug)]
pub(crate) struct Outage {
    what: &'static str,
    since: Option<tokio::time::Instant>,
}

impl Outage {
    pub(crate) fn new(what: &'static str) -> Outage {
        Outage { what, since: None }
    }

    /// Notes that the connection is lost.
    pub(crate) fn notice_loss(&mut self, server: &str, fault: &Fault) {
        if self.begins() {
            tracing::warn!(server, reason = %fault, "{} is lost; reconnecting", self.what);
        }
    }

    /// Notes that no new connection could be opened. This is logged only if the outage begins with it.
    #[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
    pub(crate) fn notice_failure(&mut self, server: &str, fault: &Fault) {
        if self.begins() {
            tracing::warn!(server, reason = %fault, "{} cannot be opened; retrying", self.what);
        }
    }

    fn begins(&mut self) -> bool {
        let begins = self.since.is_none();
        self.since.get_or_insert_with(clock::tick);
        begins
    }

    /// Ends the outage. Returns `true` if there was one.
    pub(crate) fn notice_end(&mut self, server: &str) -> bool {
        let Some(since) = self.since.take() else {
            return false;
        };
        tracing::info!(server, after = ?since.elapsed(), "{} is back", self.what);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_outage_is_over_once() {
        let mut outage = Outage::new("the connection");
        assert!(!outage.notice_end("server"), "there was none");
        for _ in 0..2 {
            outage.notice_loss("server", &Fault::not_done("no answer"));
        }
        assert!(outage.notice_end("server"));
        assert!(!outage.notice_end("server"));
    }
}
