//! Checked options, and how a request's own settings go over them.

use std::sync::Arc;
use std::time::Duration;

use crate::error::LockError;
use crate::key::Key;
use crate::kind::Kind;
use crate::name::LockName;
use crate::replicas::Replicas;
use crate::term::{self, Term};

/// The longest wait that is a duration; beyond it there is `wait_forever`.
const MAX_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const CALL_TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60);

/// Checked options.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) namespace: Arc<str>,
    pub(crate) lease: Duration,
    /// `None`: as long as leases can be.
    pub(crate) longest_lease: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) fencing: bool,
    pub(crate) call_timeout: Duration,
    pub(crate) shutdown_grace: Duration,
    pub(crate) max_waiters: usize,
    pub(crate) max_waiters_per_key: usize,
    pub(crate) replicas: Replicas,
    pub(crate) strict: bool,
    pub(crate) lazy: bool,
    /// The store is a cluster: the keys of one lock have to be in one slot.
    #[cfg(feature = "redis")]
    pub(crate) clustered: bool,
    #[cfg(feature = "redis")]
    pub(crate) channels: crate::backend::redis::ClusterChannels,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            namespace: "lock:".into(),
            lease: Duration::from_secs(30),
            longest_lease: None,
            wait: Some(Duration::from_secs(10)),
            fencing: true,
            call_timeout: Duration::from_secs(2),
            shutdown_grace: Duration::from_secs(10),
            max_waiters: 100_000,
            max_waiters_per_key: 20_000,
            replicas: Replicas::off(),
            strict: false,
            lazy: false,
            #[cfg(feature = "redis")]
            clustered: false,
            #[cfg(feature = "redis")]
            channels: crate::backend::redis::ClusterChannels::default(),
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), LockError> {
        self.lease("(default)", self.lease, true)?;
        check_wait(self.wait)?;
        self.replicas.check()?;
        if !CALL_TIMEOUTS.contains(&self.call_timeout) {
            return Err(config(format!(
                "a call timeout lies between 10 ms and 60 s, not {:?}",
                self.call_timeout
            )));
        }
        if self.namespace.len() > 256 {
            return Err(config("a namespace has 256 bytes at most"));
        }
        Ok(())
    }

    /// The key of that name.
    pub(crate) fn key(&self, name: &LockName, kind: Kind) -> Result<Key, LockError> {
        let key = Key::new(&self.namespace, name, kind)?;
        #[cfg(feature = "redis")]
        if self.clustered {
            key.check_one_slot()?;
        }
        Ok(key)
    }

    /// Checks a lease that is asked for.
    pub(crate) fn lease(
        &self,
        name: &str,
        lease: Duration,
        renewed: bool,
    ) -> Result<Term, LockError> {
        let checked = match self.longest_lease {
            Some(longest) if lease > longest => {
                Err("it is longer than the manager's longest lease (`longest_lease`)")
            }
            _ => Term::new(lease, renewed),
        };
        checked.map_err(|why| LockError::InvalidLease {
            name: name.to_owned(),
            lease,
            why,
        })
    }
}

pub(crate) fn config(why: impl Into<String>) -> LockError {
    LockError::InvalidConfig { why: why.into() }
}

pub(crate) fn check_wait(wait: Option<Duration>) -> Result<(), LockError> {
    match wait {
        Some(wait) if wait > MAX_WAIT => Err(config(format!(
            "a wait lasts a year at most, not {wait:?}: use `wait_forever`"
        ))),
        _ => Ok(()),
    }
}

/// What a request asks of its hold. Validated; times are the request's, or the manager's defaults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) term: Term,
    /// Whether the watchdog extends the lease.
    pub(crate) renewed: bool,
    pub(crate) fenced: bool,
    pub(crate) max_hold: Option<Duration>,
    /// How many permits of a semaphore; 1 of anything else.
    pub(crate) permits: u32,
    /// What logs and metrics call this lock.
    pub(crate) label: &'static str,
}

/// What a request sets itself; the manager's options fill the rest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) wait: Option<Option<Duration>>,
    pub(crate) lease: Option<Duration>,
    pub(crate) auto_renew: Option<bool>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) label: Option<&'static str>,
}

impl Overrides {
    /// Checks what was set and fills in the rest.
    pub(crate) fn terms(&self, name: &str, options: &Options) -> Result<Terms, LockError> {
        let lease = self.lease.unwrap_or(options.lease);
        let renewed = self.auto_renew.unwrap_or(true);
        let term = options.lease(name, lease, renewed)?;
        if self.max_hold.is_some_and(|longest| longest < term::MIN) {
            return Err(config("`max_hold` lasts 50 ms at least"));
        }
        Ok(Terms {
            term,
            renewed,
            fenced: options.fencing,
            max_hold: self.max_hold,
            permits: 1,
            label: self.label.unwrap_or("(unlabelled)"),
        })
    }
}
