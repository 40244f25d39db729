//! `Core`: what the parts of one manager share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{AcquireRequest, Backend, Counters, Fault, HoldRef, Renewal, Renewed, Within};
use crate::hold::ids::IdSources;
use crate::hold::lifecycle::{Lifecycle, current_runtime};
use crate::hold::runtimes::Runtimes;
use crate::hold::served::Served;
use crate::queue::LocalQueues;
use crate::release::idle;
use crate::renew::presence::Presence;
use crate::renew::{self, Background, Watch};
use crate::values::{
    ClientRecord, HoldOptions, HolderId, HolderIds, Key, Kind, LockError, LockName, Moment,
    Options, clock, config,
};

/// After this time, the call timeout and the time of replicas, a front without an answer counts as not polled.
const SILENCE: Duration = Duration::from_secs(3);

pub(crate) struct Core {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) options: Options,
    pub(crate) ids: Arc<HolderIds>,
    pub(crate) queues: Arc<LocalQueues>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) life: Arc<Lifecycle>,
    pub(crate) presence: Arc<Presence>,
    pub(crate) served: Served,
    pub(crate) id_sources: IdSources,
}

impl Core {
    /// Returns `true` if another process is known to want the lock, or this one takes turns with others.
    pub(crate) fn is_wanted(&self, key: &Key, holder: HolderId) -> bool {
        self.backend.wanted_by(key) > 0 || self.takes_turns(key, holder)
    }

    /// Returns `true` if the process takes turns at the key with others, by the store's list.
    pub(crate) fn takes_turns(&self, key: &Key, holder: HolderId) -> bool {
        let list = self.backend.waiting_list(key);
        list.is_some_and(|list| list.hears(key, holder))
    }

    /// `ids`: the holder ids that the backend was opened with, if it opens connections.
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        options: Options,
        watch: Arc<Watch>,
        ids: Arc<HolderIds>,
    ) -> Arc<Core> {
        let silence = options.call_timeout + options.replicas.longest_delay() + SILENCE;
        let queues = LocalQueues::new(options.max_waiters_per_key, options.max_waiters, silence);
        let record = ClientRecord::of_this_process(options.app.as_deref());
        let key = Key::of_client(&options.namespace, ids.client_alias());
        let presence = Presence::new(record, ids.short(), key);
        let runtimes = if backend.traits().lives_in_a_runtime {
            Runtimes::default()
        } else {
            Runtimes::any()
        };
        Arc::new(Core {
            backend,
            options,
            ids,
            queues,
            watch,
            life: Arc::new(Lifecycle::new(runtimes)),
            presence: Arc::new(presence),
            served: Served::default(),
            id_sources: IdSources::default(),
        })
    }

    /// Makes sure that the background work runs: in the current runtime, if in no other.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] outside a tokio runtime, where there are no timers, either.
    pub(crate) fn start_here(&self) -> Result<(), LockError> {
        let caller = current_runtime()?;
        if self.life.runtimes.bind(&caller) {
            renew::start(&caller, self.background());
        }
        Ok(())
    }

    /// Returns the parts that background work needs. They do not include the core, which the last manager and the last
    /// guard end.
    pub(crate) fn background(&self) -> Background {
        Background {
            watch: self.watch.clone(),
            backend: self.backend.clone(),
            life: self.life.clone(),
            presence: self.presence.clone(),
            timeout: self.options.call_timeout,
        }
    }

    /// The checked key of that name.
    ///
    /// # Errors
    /// [`LockError::InvalidName`].
    pub(crate) fn key(&self, name: &LockName, kind: Kind) -> Result<Key, LockError> {
        let key = Key::new(&self.options.namespace, name, kind)?;
        self.backend.check_key(&key)?;
        Ok(key)
    }

    /// Refuses a kind that the store does not keep, before any request.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`].
    pub(crate) fn check_kind(&self, kind: Kind) -> Result<(), LockError> {
        if self.backend.traits().kinds.contains(&kind) {
            return Ok(());
        }
        Err(self.keeps_no(kind.plural()))
    }

    /// Refuses to keep a lock of that kind between its holds, before any request.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`].
    pub(crate) fn check_keeps(&self, kind: Kind) -> Result<(), LockError> {
        if !kind.is_mutex() {
            return Err(config(format!(
                "`keep_for` is for mutexes and fenced locks: {} are given back at once",
                kind.plural()
            )));
        }
        if !self.backend.traits().tells_keepers {
            let store = self.backend.store().name();
            return Err(config(format!(
                "`keep_for` needs a store that tells a process when another one wants what it keeps: Redis without \
                 `replicas`, or memory, not this {store} store"
            )));
        }
        Ok(())
    }

    /// The store's counters. `what`: what the caller keeps there, for the error.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] if it has none.
    pub(crate) fn counters(&self, what: &str) -> Result<&dyn Counters, LockError> {
        self.backend.counters().ok_or_else(|| self.keeps_no(what))
    }

    fn keeps_no(&self, what: &str) -> LockError {
        let store = self.backend.store().name();
        config(format!(
            "the {store} store keeps no {what}: they need another store"
        ))
    }

    /// Builds the request of one call to the store from the options of a caller's request. The call is made now.
    pub(crate) fn acquire_request<'a>(
        &self,
        key: &'a Key,
        holder: HolderId,
        hold_options: &HoldOptions,
        now: Moment,
    ) -> AcquireRequest<'a> {
        let hold_ref = HoldRef {
            permits: hold_options.permits,
            ..HoldRef::one(key, holder)
        };
        let ttl = hold_options.ttl;
        let timeout = ttl.call_timeout(self.options.call_timeout);
        AcquireRequest {
            fenced: hold_options.fenced,
            ..AcquireRequest::of(hold_ref, ttl, now, timeout)
        }
    }

    /// One renewal at once, within `timeout`, apart from those of the watchdog. It waits for others that write the key.
    pub(crate) async fn renew(
        &self,
        renewal: Renewal,
        timeout: Duration,
    ) -> Result<Renewed, Fault> {
        let deadline = clock::now() + timeout;
        let mut renewal = [renewal];
        loop {
            let within = Within::call(deadline.remaining());
            let answers = self.backend.renew(&renewal, within).await?;
            match answers.first().copied().unwrap_or(Renewed::Unknown) {
                Renewed::LeftOut if !renewal[0].waits => renewal[0].waits = true,
                // A renewal that waited may find another holder in the row by now; its answer is about the time before.
                Renewed::LeftOut if deadline.has_passed() => return Ok(Renewed::Unknown),
                Renewed::LeftOut => {}
                answer => return Ok(answer),
            }
        }
    }
}

/// Counts only: a manager may have a million holds, their names are user data, and printing one must hold no lock up.
impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("open", &self.life.is_open())
            .field("holds", &self.watch.count())
            .field("guards", &self.life.in_hand.count())
            .field("waiters", &self.queues.waiting())
            .finish_non_exhaustive()
    }
}

impl Drop for Core {
    /// The last manager and the last guard are gone. The backend closes when its last user drops it, after what it
    /// has to undo.
    fn drop(&mut self) {
        idle::give_back_at_the_end(self);
        self.life.stop();
    }
}
