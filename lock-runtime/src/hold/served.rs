//! Tells a refusal that may pass from one that is final.
//!
//! A store that has served a request knows the user, and has given it the rights for requests of that kind. If it refuses
//! the next one, somebody changes users, rights or tables at that moment: a password is rotated by dropping the user and
//! making it anew, a right is taken away and given back. What was never served is refused for good: nobody has set it up. A
//! refusal that is about a name is final, too, unless the store has answered a request of this wait before. A release
//! follows a grant, so the store has served its name.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::backend::{CounterKind, Fault};
use crate::observe;
use crate::values::Kind;

/// A kind of request that may need rights which others do not need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// For a lock, or for leased permits.
    For(Kind),
    /// For plain permits, or whether a latch is open.
    Count(CounterKind),
    /// Who holds a lock.
    Look,
    /// To give back a lock, or leased permits.
    Release(Kind),
}

impl Asking {
    fn bit(self) -> u32 {
        1 << match self {
            Asking::For(kind) => kind as u32,
            Asking::Count(CounterKind::Semaphore) => 6,
            Asking::Count(CounterKind::Latch) => 7,
            Asking::Look => 8,
            Asking::Release(kind) => 9 + kind as u32,
        }
    }
}

/// The kinds of requests that the store has served this manager.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// The bits of the kinds that it has served, and above them of the kinds that it refuses since.
    bits: AtomicU32,
}

/// The distance from the bit of a served kind to the bit of a refused one.
const REFUSED: u32 = 15;

impl Served {
    /// Takes in an answer to a request. A refusal comes back as one that may pass, if the store served such a request
    /// before.
    pub(crate) fn judge<T>(&self, asking: Asking, answer: Result<T, Fault>) -> Result<T, Fault> {
        let bit = asking.bit();
        let bits = self.bits.load(Ordering::Relaxed);
        let is_about_a_key = answer.as_ref().is_err_and(Fault::is_about_a_key);
        match answer {
            Err(Fault::Denied(why)) if is_about_a_key => Err(match asking {
                Asking::Release(_) => Fault::Refused(why),
                _ => Fault::Denied(why),
            }),
            Err(Fault::Denied(why)) if bits & bit != 0 => Err(Fault::Refused(why)),
            Ok(_) if bits & (bit | bit << REFUSED) != bit => {
                self.bits.fetch_or(bit, Ordering::Relaxed);
                self.bits.fetch_and(!(bit << REFUSED), Ordering::Relaxed);
                answer
            }
            answer => answer,
        }
    }

    /// Logs that the store refuses what it served before, and that a caller waits for the end of that. It is logged
    /// once until the store serves such a request again.
    pub(crate) fn log_refusal(&self, asking: Asking, name: &str, fault: &Fault) {
        let bit = asking.bit() << REFUSED;
        if self.bits.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            observe::refused_for_now(name, fault);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUTEX: Asking = Asking::For(Kind::Mutex);

    fn denied() -> Result<(), Fault> {
        Err(Fault::denied("no right"))
    }

    #[test]
    fn each_kind_of_request_has_a_bit_of_its_own() {
        let locks = Kind::ALL.map(Asking::For).into_iter();
        let all = locks.chain(Kind::ALL.map(Asking::Release)).chain([
            Asking::Count(CounterKind::Semaphore),
            Asking::Count(CounterKind::Latch),
            Asking::Look,
        ]);
        let bits: u32 = all.map(Asking::bit).sum();
        assert_eq!(bits, (1 << REFUSED) - 1);
    }

    #[test]
    fn a_refusal_may_pass_once_such_a_request_was_served() {
        let served = Served::default();
        let is_final = |asking| matches!(served.judge(asking, denied()), Err(Fault::Denied(_)));
        assert!(is_final(MUTEX));
        served.judge(MUTEX, Ok(())).unwrap();
        let passing = served.judge(MUTEX, denied()).unwrap_err();
        assert!(matches!(&passing, Fault::Refused(_)) && passing.is_passing());
        assert!(is_final(Asking::For(Kind::Fair)), "it needs other rights");
        assert!(is_final(Asking::Look));
        served.log_refusal(MUTEX, "k", &passing);
        assert!(!is_final(MUTEX), "it is still known to have been served");
    }

    #[test]
    fn a_refusal_that_is_about_a_name_stays_final() {
        let served = Served::default();
        served.judge(MUTEX, Ok(())).unwrap();
        let of_key = || Err::<(), _>(Fault::denied("NOPERM No permissions to access a key"));
        let judged = served.judge(MUTEX, of_key());
        assert!(matches!(judged, Err(Fault::Denied(_))));
        let judged = served.judge(Asking::Release(Kind::Fair), of_key());
        assert!(
            judged.is_err_and(|fault| fault.is_passing_refusal()),
            "its grant was served"
        );
    }

    #[test]
    fn other_faults_stay_what_they_are() {
        let served = Served::default();
        served.judge(MUTEX, Ok(())).unwrap();
        let impossible = || Err::<(), _>(Fault::impossible("too few"));
        let judged = served.judge(MUTEX, impossible());
        assert!(matches!(judged, Err(Fault::Impossible(_))));
    }
}
