//! The table of the attribute's options.

use std::time::Duration;

/// The shortest lease, and the shortest of all times but a wait.
pub(crate) const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// One of the attribute's options.
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// Its meaning, in a few words.
    pub(crate) what: &'static str,
    /// Its names in other libraries: in lower case, without `_`, separated by spaces. One name may stand for several
    /// options.
    pub(crate) elsewhere: &'static str,
    pub(crate) form: Form,
}

/// The form of an option's value. A value that is not of its [`Own`](Form::Own) form goes to the lock's request, as the
/// option of that name.
pub(crate) enum Form {
    /// The option has a parser of its own in `args`.
    Own,
    /// A duration of these bounds.
    Duration(Option<Duration>, Option<Duration>),
    Bool,
    /// An expression of any type.
    Any,
}

const fn known(name: &'static str, what: &'static str, elsewhere: &'static str) -> Known {
    Known {
        name,
        what,
        elsewhere,
        form: Form::Own,
    }
}

impl Known {
    const fn of(self, form: Form) -> Known {
        Known { form, ..self }
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
    )
    .of(Form::Duration(None, Some(LONGEST_WAIT))),
    known(
        "lease",
        "how long the store keeps the lock for a holder that does not renew it",
        "atmostfor duration expiration expire expires expiretime expiry leaseduration leasems \
         leasetime lockatmostfor timeout ttl",
    )
    .of(Form::Duration(Some(SHORTEST), Some(LONGEST_LEASE))),
    known(
        "auto_renew",
        "whether the lease is renewed while the body runs",
        "autoextend autorenewal extend heartbeat keepalive refresh renew renewal watchdog",
    )
    .of(Form::Bool),
    known(
        "min_hold",
        "how long the lock stays taken at least, even if the body ends before",
        "atleastfor lockatleastfor minduration mintime",
    )
    .of(Form::Duration(Some(SHORTEST), Some(LONGEST_LEASE))),
    known(
        "max_hold",
        "how long the body may run under the lock at most",
        "bodytimeout executiontimeout maxduration maxtime",
    )
    .of(Form::Duration(Some(SHORTEST), None)),
    known(
        "keep_for",
        "how long the process keeps the lock for its next call",
        "idletime idletimeout keepidle linger lingertime stickyfor",
    )
    .of(Form::Duration(Some(SHORTEST), Some(LONGEST_LEASE))),
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
    )
    .of(Form::Any),
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
