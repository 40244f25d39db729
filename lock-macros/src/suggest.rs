//! "Did you mean": the option that another library knows by this name, or the closest of a few known names.

/// One of the attribute's options.
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// Its meaning, in a few words.
    pub(crate) what: &'static str,
    /// Its names in other libraries: in lower case, without `_`, separated by spaces. One name may stand for several
    /// options.
    elsewhere: &'static str,
}

const fn known(name: &'static str, what: &'static str, elsewhere: &'static str) -> Known {
    Known {
        name,
        what,
        elsewhere,
    }
}

/// Every option, in the order in which the manual lists them.
pub(crate) static OPTIONS: [Known; 17] = [
    known(
        "key",
        "the name of the lock, such as \"order:{id}\"",
        "id keyname lock lockkey lockname name resource value",
    ),
    known(
        "keys",
        "the names of several locks, held as one",
        "ids lockkeys locknames locks names resources",
    ),
    known(
        "wait",
        "how long a call waits for a busy lock; \"0s\" tries once",
        "acquiretimeout attempts blocking blockingtimeout locktimeout maxretries maxwait nowait \
         retries retry retrycount retrydelay retryinterval timeout trylock waittime waittimeout",
    ),
    known(
        "lease",
        "how long the store keeps the lock for a holder that does not renew it",
        "atmostfor duration expiration expire expires expiretime expiry leaseduration leasems \
         leasetime lockatmostfor timeout ttl",
    ),
    known(
        "auto_renew",
        "whether the lease is renewed while the body runs",
        "autoextend autorenewal extend heartbeat keepalive refresh renew renewal watchdog",
    ),
    known(
        "min_hold",
        "how long the lock stays taken at least, even if the body ends before",
        "atleastfor lockatleastfor minduration mintime",
    ),
    known(
        "max_hold",
        "how long the body may run under the lock at most",
        "bodytimeout executiontimeout maxduration maxtime",
    ),
    known(
        "keep_for",
        "how long the process keeps the lock for its next call",
        "idletime idletimeout keepidle linger lingertime stickyfor",
    ),
    known(
        "when",
        "a condition: if it is false, the body runs without the lock",
        "condition enabled if onlyif",
    ),
    known(
        "on_busy",
        "what a call does when the lock is busy: `error`, `skip` or `call(path)`",
        "fallback ifbusy iflocked locktimeoutstrategy onconflict onfail onfailure onlocked skip",
    ),
    known(
        "on_lost",
        "what happens to the body when the lock is lost: `cancel`, `finish` or `error`",
        "iflost onexpire onexpired onloss releasetimeoutstrategy",
    ),
    known(
        "map_err",
        "what makes the return value of a `LockError`",
        "error errorhandler onerror",
    ),
    known(
        "mode",
        "the kind of lock: `exclusive`, `fair`, `read`, `write` or `semaphore(n)`",
        "concurrency exclusive fair kind limit lockkind lockmode locktype maxconcurrency permits read semaphore shared type write",
    ),
    known(
        "label",
        "what logs and metrics call the lock",
        "description metric metricname tag",
    ),
    known(
        "manager",
        "the `LockManager` that is asked for the lock",
        "backend client connection lockmanager lockprovider lockregistry locks pool provider \
         redis registry store",
    ),
    known(
        "guard",
        "the name under which the body finds its `Lease`, with the fencing token",
        "as fencing fencingtoken handle token",
    ),
    known(
        "crate",
        "the path of `lock_runtime`",
        "cratename cratepath krate runtime",
    ),
];

/// Returns the options that an unknown one may stand for.
pub(crate) fn meant(name: &str) -> Vec<&'static Known> {
    let plain = name.replace('_', "").to_lowercase();
    let mut meant: Vec<_> = OPTIONS
        .iter()
        .filter(|option| option.elsewhere.split(' ').any(|other| other == plain))
        .collect();
    if meant.is_empty() {
        let close = nearest(name, OPTIONS.iter().map(|option| option.name));
        meant.extend(OPTIONS.iter().find(|option| Some(option.name) == close));
    }
    meant
}

/// Returns the closest candidate, if there is one whose distance from `name` is at most a third of its length (or one
/// edit for short names).
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|(edits, _)| *edits <= limit)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Returns `; did you mean ...?`, or nothing if no name is close.
pub(crate) fn hint<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(name, candidates) {
        Some(close) => format!("; did you mean `{close}`?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{OPTIONS, meant, nearest};

    fn names_meant(name: &str) -> Vec<&'static str> {
        meant(name).iter().map(|option| option.name).collect()
    }

    #[test]
    fn the_name_in_another_library_finds_an_option() {
        for (name, expected) in [
            ("ttl", vec!["lease"]),
            ("leaseTime", vec!["lease"]),
            ("lease_ms", vec!["lease"]),
            ("lockAtMostFor", vec!["lease"]),
            ("lock_at_least_for", vec!["min_hold"]),
            ("waitTime", vec!["wait"]),
            ("timeout", vec!["wait", "lease"]),
            ("lockName", vec!["key"]),
            ("maxHold", vec!["max_hold"]),
            ("keepFor", vec!["keep_for"]),
            ("idle_timeout", vec!["keep_for"]),
            ("leese", vec!["lease"]),
            ("colour", vec![]),
        ] {
            assert_eq!(names_meant(name), expected, "{name}");
        }
    }

    #[test]
    fn every_name_from_elsewhere_can_be_found_and_is_none_of_ours() {
        for option in &OPTIONS {
            for other in option.elsewhere.split(' ') {
                assert!(names_meant(other).contains(&option.name), "{other}");
                assert!(OPTIONS.iter().all(|option| option.name != other), "{other}");
            }
        }
    }

    #[test]
    fn a_typo_finds_its_name_and_a_stranger_finds_none() {
        let names = ["order", "ledger", "id"];
        for (typo, expected) in [
            ("ordr", Some("order")),
            ("oredr", Some("order")),
            ("legder", Some("ledger")),
            ("ib", Some("id")),
            ("customer", None),
            ("xy", None),
        ] {
            assert_eq!(nearest(typo, names), expected, "{typo}");
        }
    }
}
