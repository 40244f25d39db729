//! Checked options, and how a request's own settings go over them.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::values::channels::ClusterChannels;
use crate::values::client;
use crate::values::error::{LockError, config};
use crate::values::handshake::Handshake;
use crate::values::label::Label;
use crate::values::replicas::Replicas;
use crate::values::ttl::{self, Ttl};

/// The longest wait that is a duration; beyond it there is `wait_forever`.
const MAX_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const CALL_TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60);

/// The time beyond the call timeout after which a caller takes the runtime of its manager for one that nobody drives, where a
/// task in it makes the call. The task has the whole call timeout, and may be polled late.
pub(crate) const RUNTIME_SLACK: Duration = Duration::from_secs(3);

/// The most permits that one request takes: one script handles that many in a millisecond of the server's time.
const MOST_PERMITS: u32 = 1_000;

/// The largest value of a counter: a double tells it from its neighbours, and sums do not overflow.
const MOST_IN_ALL: u64 = 1_000_000_000_000;

/// Checked options.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) namespace: Arc<str>,
    /// The name that operators see for this process; `None`: the name of its executable.
    pub(crate) app: Option<Arc<str>>,
    pub(crate) lease: Duration,
    /// `None`: as long as leases can be.
    pub(crate) longest_lease: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) fencing: bool,
    pub(crate) call_timeout: Duration,
    pub(crate) shutdown_grace: Duration,
    pub(crate) max_waiters: usize,
    pub(crate) max_waiters_per_key: usize,
    /// The longest sleep of a waiter that has no message of a release, and no confirmation that it listens, before it
    /// asks the store again. Only tests set it.
    pub(crate) longest_nap: Duration,
    pub(crate) replicas: Replicas,
    pub(crate) strict: bool,
    pub(crate) lazy: bool,
    pub(crate) channels: ClusterChannels,
    pub(crate) ensure_schema: bool,
    pub(crate) handshake: Handshake,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            namespace: "lock:".into(),
            app: None,
            lease: Duration::from_secs(30),
            longest_lease: None,
            wait: Some(Duration::from_secs(10)),
            fencing: true,
            call_timeout: Duration::from_secs(2),
            shutdown_grace: Duration::from_secs(10),
            max_waiters: 100_000,
            max_waiters_per_key: 20_000,
            longest_nap: Duration::from_secs(1),
            replicas: Replicas::off(),
            strict: false,
            lazy: false,
            channels: ClusterChannels::default(),
            ensure_schema: false,
            handshake: Handshake::default(),
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), LockError> {
        self.lease("(default)", self.lease, true)?;
        check_wait(self.wait)?;
        self.replicas.check()?;
        client::check_app(self.app.as_deref())?;
        if !CALL_TIMEOUTS.contains(&self.call_timeout) {
            return Err(config(format!(
                "a call timeout lies between 10 ms and 60 s, not {:?}",
                self.call_timeout
            )));
        }
        if self.namespace.len() > 256 || self.namespace.contains(char::is_control) {
            return Err(config(
                "a namespace has 256 bytes at most, and no control characters, such as the end of a line",
            ));
        }
        Ok(())
    }

    /// Checks a lease that is asked for.
    pub(crate) fn lease(
        &self,
        name: &str,
        lease: Duration,
        renewed: bool,
    ) -> Result<Ttl, LockError> {
        let checked = match self.longest_lease {
            Some(longest) if lease > longest => {
                Err("it is longer than the manager's longest lease (`longest_lease`)")
            }
            _ => Ttl::new(lease, renewed),
        };
        checked.map_err(|why| LockError::InvalidLease {
            name: name.to_owned(),
            lease,
            why,
        })
    }
}

pub(crate) fn check_wait(wait: Option<Duration>) -> Result<(), LockError> {
    match wait {
        Some(wait) if wait > MAX_WAIT => Err(config(format!(
            "a wait lasts a year at most, not {wait:?}: use `wait_forever`"
        ))),
        _ => Ok(()),
    }
}

pub(crate) fn check_permits(permits: u32) -> Result<(), LockError> {
    check_number("permits", permits, MOST_PERMITS)
}

/// Checks how many permits or ids a request takes.
pub(crate) fn check_number(what: &str, number: u32, most: u32) -> Result<(), LockError> {
    if (1..=most).contains(&number) {
        return Ok(());
    }
    Err(config(format!(
        "a request takes 1 to {most} {what}, not {number}"
    )))
}

/// Checks a number that a counter is to hold.
pub(crate) fn check_count(what: &str, count: u64) -> Result<(), LockError> {
    if count <= MOST_IN_ALL {
        return Ok(());
    }
    Err(config(format!(
        "{what} is {MOST_IN_ALL} at most, not {count}"
    )))
}

/// Checks how many permits a semaphore is to have in all.
pub(crate) fn check_in_all(permits: u64) -> Result<NonZeroU64, LockError> {
    check_count("the number of a semaphore's permits", permits)?;
    let none = || config("a semaphore with 0 permits in all admits nobody: it has 1 at least");
    NonZeroU64::new(permits).ok_or_else(none)
}

/// The options of a request's hold. They are validated; times are the request's, or the manager's defaults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldOptions {
    pub(crate) ttl: Ttl,
    /// Whether the watchdog extends the lease.
    pub(crate) renewed: bool,
    pub(crate) fenced: bool,
    pub(crate) max_hold: Option<Duration>,
    /// For how long this process keeps the lock once the hold has ended, for the next caller of its own.
    pub(crate) keep_for: Option<Duration>,
    /// The number of permits of a semaphore; 1 for anything else.
    pub(crate) permits: u32,
    /// The name of this lock in logs and metrics.
    pub(crate) label: Label,
}

/// The options that a request sets itself; the manager's options fill the rest. Each has the name of its method of
/// [`LockRequest`](crate::LockRequest), and the attribute's expansion sets it by that name.
#[allow(missing_docs, reason = "each is documented at the method of its name")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrides {
    /// Without a time in it, the request waits for as long as it takes.
    pub wait: Option<Option<Duration>>,
    pub lease: Option<Duration>,
    pub auto_renew: Option<bool>,
    pub min_hold: Option<Duration>,
    pub max_hold: Option<Duration>,
    pub keep_for: Option<Duration>,
    pub label: Option<&'static str>,
    /// Only an election sets it.
    pub leads: bool,
}

impl Overrides {
    /// Checks what was set and fills in the rest.
    pub(crate) fn hold_options(
        &self,
        name: &str,
        options: &Options,
        store: &'static str,
    ) -> Result<HoldOptions, LockError> {
        let lease = self.lease.unwrap_or(options.lease);
        let renewed = self.auto_renew.unwrap_or(true);
        let ttl = options.lease(name, lease, renewed)?;
        if self.max_hold.is_some_and(|longest| longest < ttl::MIN) {
            return Err(config("`max_hold` lasts 50 ms at least"));
        }
        for (option, time) in [("min_hold", self.min_hold), ("keep_for", self.keep_for)] {
            if let Some(time) = time
                && !(ttl::MIN..=ttl::MAX).contains(&time)
            {
                return Err(config(format!(
                    "`{option}` lasts 50 ms to 24 h, not {time:?}"
                )));
            }
        }
        if let (Some(least), Some(longest)) = (self.min_hold, options.longest_lease)
            && ttl::covering(least) > longest
        {
            return Err(config(format!(
                "`min_hold` becomes a lease when the hold ends, and a lease of {:?} is longer than the manager's longest \
                 lease, {longest:?}: raise `longest_lease`",
                ttl::covering(least)
            )));
        }
        if self.keep_for.is_some() && !renewed {
            return Err(config(
                "`keep_for` needs a lease that is renewed: leave out `auto_renew(false)`",
            ));
        }
        Ok(HoldOptions {
            ttl,
            renewed,
            fenced: options.fencing,
            max_hold: self.max_hold,
            keep_for: self.keep_for,
            permits: 1,
            label: Label {
                lock: self.label.unwrap_or(Label::UNLABELLED),
                store,
                leads: self.leads,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_accepted(change: impl FnOnce(&mut Options)) -> bool {
        let mut options = Options::default();
        change(&mut options);
        match options.check() {
            Ok(()) => true,
            Err(LockError::InvalidConfig { .. } | LockError::InvalidLease { .. }) => false,
            Err(error) => panic!("{error:?}"),
        }
    }

    #[test]
    fn options_are_accepted_up_to_their_bounds_and_no_further() {
        let second = Duration::from_secs(1);
        assert!(is_accepted(|_| ()));
        assert!(is_accepted(|options| options.wait = Some(MAX_WAIT)));
        assert!(!is_accepted(
            |options| options.wait = Some(MAX_WAIT + second)
        ));
        assert!(is_accepted(
            |options| options.namespace = "n".repeat(256).into()
        ));
        assert!(!is_accepted(
            |options| options.namespace = "n".repeat(257).into()
        ));
        assert!(is_accepted(|options| options.call_timeout = second * 60));
        assert!(!is_accepted(|options| options.call_timeout = second * 61));
        assert!(is_accepted(
            |options| options.longest_lease = Some(options.lease)
        ));
        assert!(!is_accepted(
            |options| options.longest_lease = Some(options.lease / 2)
        ));
        assert!(!is_accepted(
            |options| options.replicas = Replicas::at_least(0)
        ));
        assert!(!is_accepted(|options| options.app = Some("".into())));
    }

    #[test]
    fn permits_are_counted_up_to_a_thousand_and_a_trillion_in_all() {
        assert!(check_permits(1).is_ok() && check_permits(MOST_PERMITS).is_ok());
        assert!(check_permits(0).is_err() && check_permits(MOST_PERMITS + 1).is_err());
        assert_eq!(check_in_all(MOST_IN_ALL).unwrap().get(), MOST_IN_ALL);
        assert!(check_in_all(0).is_err() && check_in_all(MOST_IN_ALL + 1).is_err());
    }
}
