//! The mutex of the parts whose interleavings are checked: the watchdog's entries, the local queue, the topics.
//!
//! It is `std`'s. In unit tests it is shuttle's wherever a model runs (`models.rs` and the `models` modules of those
//! parts), so that the model decides who gets the lock next.

#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(test)]
pub(crate) use self::either::{Mutex, MutexGuard};

#[cfg(test)]
mod either {
    use std::ops::{Deref, DerefMut};
    use std::sync::{LockResult, PoisonError};

    /// One or the other for its whole life, by whether a model made it.
    #[derive(Debug)]
    pub(crate) enum Mutex<T> {
        Std(std::sync::Mutex<T>),
        Model(shuttle::sync::Mutex<T>),
    }

    pub(crate) enum MutexGuard<'a, T> {
        Std(std::sync::MutexGuard<'a, T>),
        /// `None` once it is dropped.
        Model(Option<shuttle::sync::MutexGuard<'a, T>>),
    }

    impl<'a, T> MutexGuard<'a, T> {
        fn model(guard: shuttle::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            MutexGuard::Model(Some(guard))
        }
    }

    /// Others may run between this and what follows it, not only before the next lock: what follows may be a message
    /// through a channel that shuttle does not see.
    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            if let MutexGuard::Model(guard) = self {
                drop(guard.take());
                let runs = shuttle::current::try_get_current_task().is_some();
                if runs && !std::thread::panicking() {
                    shuttle::thread::yield_now();
                }
            }
        }
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            match shuttle::current::try_get_current_task() {
                None => Mutex::Std(std::sync::Mutex::new(value)),
                Some(_) => Mutex::Model(shuttle::sync::Mutex::new(value)),
            }
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            let poisoned = |guard| PoisonError::new(MutexGuard::Std(guard));
            match self {
                Mutex::Std(mutex) => mutex
                    .lock()
                    .map(MutexGuard::Std)
                    .map_err(|error| poisoned(error.into_inner())),
                Mutex::Model(mutex) => mutex
                    .lock()
                    .map(MutexGuard::model)
                    .map_err(|error| PoisonError::new(MutexGuard::model(error.into_inner()))),
            }
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Mutex<T> {
            Mutex::new(T::default())
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match self {
                MutexGuard::Std(guard) => guard,
                MutexGuard::Model(guard) => guard.as_ref().expect("it is not dropped yet"),
            }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match self {
                MutexGuard::Std(guard) => guard,
                MutexGuard::Model(guard) => guard.as_mut().expect("it is not dropped yet"),
            }
        }
    }
}
