//! One request to a counter, for a caller who cannot repeat it blindly.

use std::time::Duration;

use crate::backend::{Fault, Reply, Sort, Tally};
use crate::clock;
use crate::core::Core;
use crate::error::{LockError, StoreError};
use crate::key::Key;
use crate::kind::Kind;
use crate::name::LockName;

const PAUSE: Duration = Duration::from_millis(25);

/// A counter by its checked name.
#[derive(Debug)]
pub(crate) struct Counter<'a> {
    pub(crate) core: &'a Core,
    pub(crate) key: Key,
    sort: Sort,
}

impl Counter<'_> {
    /// # Errors
    /// [`LockError::InvalidName`], [`LockError::ShuttingDown`].
    pub(crate) fn new<'a>(
        core: &'a Core,
        name: &LockName,
        sort: Sort,
    ) -> Result<Counter<'a>, LockError> {
        let key = Key::new(&core.options.namespace, name, Kind::Permits)?;
        core.start();
        core.life.admit(&key)?;
        Ok(Counter { core, key, sort })
    }

    pub(crate) fn tally(&self) -> Tally<'_> {
        Tally {
            key: &self.key,
            sort: self.sort,
        }
    }

    /// Sends a request within the call timeout, again only after an answer that says that nothing was done.
    pub(crate) async fn once<'b, T>(
        &'b self,
        ask: impl Fn(&'b Core, Tally<'b>, Duration) -> Reply<'b, T>,
    ) -> Result<T, LockError> {
        let deadline = clock::now() + self.core.options.call_timeout;
        loop {
            let fault = match ask(self.core, self.tally(), deadline.remaining()).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            if matches!(fault, Fault::NotDone(_)) && deadline.remaining() > PAUSE {
                clock::sleep(PAUSE).await;
                continue;
            }
            return Err(self.error(fault));
        }
    }

    /// The fault as the caller's error; one whose outcome is unknown says so.
    pub(crate) fn error(&self, fault: Fault) -> LockError {
        let fault = match fault {
            Fault::Unknown(source) => Fault::Unknown(StoreError::new(format!(
                "unknown whether it was done: {source}"
            ))),
            fault => fault,
        };
        fault.into_error(self.key.name())
    }
}
