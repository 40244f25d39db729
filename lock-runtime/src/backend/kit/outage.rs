//! The log messages of an outage.

use crate::backend::Fault;
use crate::observe::metrics::logged;
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
        self.begin(server, fault, "is lost; reconnecting");
    }

    /// Notes that no new connection could be opened. This is logged only if the outage begins with it.
    pub(crate) fn notice_failure(&mut self, server: &str, fault: &Fault) {
        self.begin(server, fault, "cannot be opened; retrying");
    }

    fn begin(&mut self, server: &str, fault: &Fault, how: &str) {
        if self.since.is_none() {
            self.since = Some(clock::tick());
            let what = self.what;
            logged!(warn, server, reason = %fault, "{what} {how}");
        }
    }

    /// Ends the outage. Returns `true` if there was one.
    pub(crate) fn notice_end(&mut self, server: &str) -> bool {
        let Some(since) = self.since.take() else {
            return false;
        };
        let what = self.what;
        logged!(info, server, after = ?since.elapsed(), "{what} is back");
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
