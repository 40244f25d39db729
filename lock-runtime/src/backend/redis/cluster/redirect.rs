//! The answers of a cluster's node to a request that it does not serve. The request was certainly not executed, and the
//! answer may name another node.

use super::url;
use crate::backend::Fault;
use crate::backend::kit::hosts::Address;

/// The kind of redirection, and the error that it came with.
#[derive(Clone, Debug)]
pub(in super::super) struct Redirect {
    pub(super) kind: RedirectKind,
    pub(in super::super) fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RedirectKind {
    /// Another node has the slot.
    Moved { slot: u16, address: Address },
    /// The slot is being moved to that node. The requested keys are already there, or do not exist.
    Ask { address: Address },
    /// The slot is being moved, and the keys are at two nodes.
    Again,
    /// The cluster is not in order, perhaps because of a failover.
    Down,
}

impl Redirect {
    pub(in super::super) fn of(fault: &Fault) -> Option<Redirect> {
        let Fault::NotDone(source) = fault else {
            return None;
        };
        let kind = read(&source.to_string())?;
        Some(Redirect {
            kind,
            fault: fault.clone(),
        })
    }

    /// Returns `true` if no script can use the keys of the request together now, but perhaps each key by itself.
    pub(in super::super) fn splits(&self) -> bool {
        self.kind == RedirectKind::Again
    }

    /// Makes the request wait for the slot's move instead of asking in the middle of it. This is for scripts that read
    /// keys which the request could not name, and which may be at another node.
    pub(in super::super) fn without_asking(mut self) -> Redirect {
        if matches!(self.kind, RedirectKind::Ask { .. }) {
            self.kind = RedirectKind::Again;
        }
        self
    }

    /// Returns `true` if the keys are split, as for [`splits`](Redirect::splits), or may turn out to be.
    pub(in super::super) fn may_split(&self) -> bool {
        matches!(self.kind, RedirectKind::Again | RedirectKind::Ask { .. })
    }
}

fn read(text: &str) -> Option<RedirectKind> {
    let mut words = text.split_whitespace();
    let place = |words: &mut std::str::SplitWhitespace<'_>| {
        let slot: u16 = words.next()?.parse().ok()?;
        let address = words.next()?;
        // The node is configured to announce a host name, and has none.
        let address = match address.strip_prefix('?') {
            Some(port) if port.starts_with(':') => port,
            _ => address,
        };
        url::split(address)?;
        Some((slot, Address::from(address)))
    };
    match words.next()? {
        "MOVED" => place(&mut words).map(|(slot, address)| RedirectKind::Moved { slot, address }),
        "ASK" => place(&mut words).map(|(_, address)| RedirectKind::Ask { address }),
        "TRYAGAIN" => Some(RedirectKind::Again),
        "CLUSTERDOWN" => Some(RedirectKind::Down),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_parsed() {
        let address: Address = "127.0.0.1:6381".into();
        let moved = RedirectKind::Moved {
            slot: 3_999,
            address: address.clone(),
        };
        assert_eq!(read("MOVED 3999 127.0.0.1:6381"), Some(moved));
        let ask = RedirectKind::Ask { address };
        assert_eq!(read("ASK 3999 127.0.0.1:6381"), Some(ask));
        assert_eq!(
            read("TRYAGAIN Multiple keys request during rehashing of slot"),
            Some(RedirectKind::Again)
        );
        assert_eq!(
            read("CLUSTERDOWN The cluster is down"),
            Some(RedirectKind::Down)
        );
    }

    #[test]
    fn a_node_without_a_name_is_read_as_such() {
        let moved = read("MOVED 1 :6381");
        assert!(
            matches!(&moved, Some(RedirectKind::Moved { address, .. }) if &**address == ":6381")
        );
        assert_eq!(read("MOVED 1 ?:6381"), moved);
    }

    #[test]
    fn other_texts_are_not_redirects() {
        for text in [
            "",
            "MOVED",
            "MOVED x a:1",
            "MOVED 1",
            "MOVED 1 a",
            "ASK 1 a:x",
            "ERR MOVED 1 a:1",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
