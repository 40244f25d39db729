//! The crate's mutexes. Every step under a mutex leaves its data whole, so a panic of the thread that held it concerns
//! no other thread: `lock` goes on, where `std`'s would report the panic.
//!
//! [`Modelled`] is for the parts whose interleavings are checked: holds, the watchdog's entries, the local queue, the
//! topics. In unit tests it is shuttle's mutex wherever a model runs (`models.rs` and the `models` modules of those parts),
//! so that the model decides who gets the lock next; everywhere else it is [`Mutex`].

use std::sync::PoisonError;

pub(crate) use std::sync::MutexGuard;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a model runs on this thread.
pub(crate) fn is_modelled() -> bool {
    #[cfg(test)]
    return shuttle::current::try_get_current_task().is_some();
    #[cfg(not(test))]
    false
}

/// Runs a model by this many schedules that are drawn at random. Shuttle's own stacks are too small for a build without
/// optimizations.
#[cfg(test)]
pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static, schedules: usize) {
    let mut config = shuttle::Config::default();
    config.stack_size = 0x40000;
    let scheduler = shuttle::scheduler::RandomScheduler::new(schedules);
    shuttle::Runner::new(scheduler, config).run(model);
}

#[cfg(not(test))]
pub(crate) use self::{Mutex as Modelled, MutexGuard as ModelledGuard};

#[cfg(test)]
pub(crate) use self::either::{Modelled, ModelledGuard, taken};

#[cfg(test)]
mod either {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;

    use super::{Mutex, MutexGuard};

    thread_local! {
        static TAKEN: RefCell<BTreeMap<&'static str, usize>> = RefCell::default();
    }

    /// Returns how often this thread has locked what, by the type of the data, and begins anew.
    pub(crate) fn taken() -> BTreeMap<&'static str, usize> {
        TAKEN.take()
    }

    /// Either mutex for its whole life: a model's if a model made it.
    #[derive(Debug)]
    pub(crate) enum Modelled<T> {
        Std(Mutex<T>),
        Model(shuttle::sync::Mutex<T>),
    }

    pub(crate) enum ModelledGuard<'a, T> {
        Std(MutexGuard<'a, T>),
        /// `None` once it is dropped.
        Model(Option<shuttle::sync::MutexGuard<'a, T>>),
    }

    /// Lets other threads run between the unlock and what follows it, not only before the next lock: what follows may
    /// be a message through a channel that shuttle does not see.
    impl<T> Drop for ModelledGuard<'_, T> {
        fn drop(&mut self) {
            if let ModelledGuard::Model(guard) = self {
                drop(guard.take());
                let runs = shuttle::current::try_get_current_task().is_some();
                if runs && !std::thread::panicking() {
                    shuttle::thread::yield_now();
                }
            }
        }
    }

    impl<T> Modelled<T> {
        pub(crate) fn new(value: T) -> Modelled<T> {
            if super::is_modelled() {
                Modelled::Model(shuttle::sync::Mutex::new(value))
            } else {
                Modelled::Std(Mutex::new(value))
            }
        }

        pub(crate) fn lock(&self) -> ModelledGuard<'_, T> {
            match self {
                Modelled::Std(mutex) => {
                    let of = std::any::type_name::<T>();
                    TAKEN.with_borrow_mut(|taken| *taken.entry(of).or_default() += 1);
                    ModelledGuard::Std(mutex.lock())
                }
                Modelled::Model(mutex) => {
                    let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
                    ModelledGuard::Model(Some(guard))
                }
            }
        }
    }

    impl<T: Default> Default for Modelled<T> {
        fn default() -> Modelled<T> {
            Modelled::new(T::default())
        }
    }

    impl<T> Deref for ModelledGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match self {
                ModelledGuard::Std(guard) => guard,
                ModelledGuard::Model(guard) => guard.as_ref().expect("it is not dropped yet"),
            }
        }
    }

    impl<T> DerefMut for ModelledGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match self {
                ModelledGuard::Std(guard) => guard,
                ModelledGuard::Model(guard) => guard.as_mut().expect("it is not dropped yet"),
            }
        }
    }
}
