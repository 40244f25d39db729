//! A count of the commands that a server executed between two points.

use std::collections::BTreeMap;

use crate::server::RedisServer;

/// The server's own counters, read at one moment.
///
/// It counts every command that was *executed*, including those inside scripts, no matter which client sent it.
/// [`FaultProxy`](crate::FaultProxy) counts what one client put on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandStats {
    calls: BTreeMap<String, u64>,
}

impl CommandStats {
    /// Reads the counters now.
    pub fn of(server: &RedisServer) -> Self {
        let info: String = server.query(&["INFO", "commandstats"]);
        Self::parse(&info)
    }

    /// Returns what happened since `earlier`, without this reader's own `INFO`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let fresh = |(name, calls): (&String, &u64)| {
            // A count is below the earlier one only after a restart, where counting began again.
            let calls = calls.checked_sub(earlier.calls(name)).unwrap_or(*calls);
            (calls > 0 && name != "info").then(|| (name.clone(), calls))
        };
        Self {
            calls: self.calls.iter().filter_map(fresh).collect(),
        }
    }

    /// Returns the calls of one command, by its lower-case name (`client|list` for a subcommand).
    pub fn calls(&self, command: &str) -> u64 {
        self.calls.get(command).copied().unwrap_or(0)
    }

    /// Returns the calls of scripts, however they were named.
    pub fn scripts(&self) -> u64 {
        ["eval", "evalsha", "fcall"]
            .iter()
            .map(|name| self.calls(name))
            .sum()
    }

    /// Returns the calls of all commands.
    pub fn total(&self) -> u64 {
        self.calls.values().sum()
    }

    fn parse(info: &str) -> Self {
        let entry = |line: &str| {
            let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let calls = fields
                .split(',')
                .find_map(|field| field.strip_prefix("calls="))?;
            Some((name.to_owned(), calls.trim().parse().ok()?))
        };
        Self {
            calls: info.lines().filter_map(entry).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_holds_only_what_happened_in_between() {
        let first = CommandStats::parse(
            "# Commandstats\r\ncmdstat_info:calls=1,usec=9\r\ncmdstat_get:calls=5,usec=1\r\n",
        );
        let second = CommandStats::parse(
            "cmdstat_info:calls=2,usec=9\r\ncmdstat_get:calls=5,usec=1\r\n\
             cmdstat_evalsha:calls=3,usec=1\r\ncmdstat_client|list:calls=1,usec=1\r\n",
        );
        let diff = second.since(&first);
        assert_eq!(diff.calls("get"), 0);
        assert_eq!(diff.calls("client|list"), 1);
        assert_eq!((diff.scripts(), diff.total()), (3, 4));
    }
}
