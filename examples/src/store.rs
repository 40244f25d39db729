//! The store that `LOCK_URL` names.

use std::fmt;
use std::time::Duration;

use lock_runtime::{LockError, LockManager};

const VARIABLE: &str = "LOCK_URL";
const DEFAULT: &str = "memory://";
/// A store in memory that all connections of the program share, as they would share a server.
const SHARED_DEFAULT: &str = "memory://examples";

/// The call timeout. It is more than the library's 2 s, because the program may share its machine with a compiler.
const PATIENCE: Duration = Duration::from_secs(20);

/// The place where the locks live: `LOCK_URL`, or this process's memory.
#[derive(Clone)]
pub struct Store {
    url: String,
}

impl Store {
    /// Reads `LOCK_URL`; unset or empty means `memory://`.
    pub fn from_env() -> Store {
        let url = std::env::var(VARIABLE).unwrap_or_default();
        Store::new(if url.is_empty() { DEFAULT } else { &url })
    }

    /// The store at a URL that the program knows by itself.
    pub fn new(url: &str) -> Store {
        Store {
            url: url.to_owned(),
        }
    }

    /// Returns the URL, with its password: not for logs.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns whether nothing was set: the locks live in this process's memory.
    pub fn is_default(&self) -> bool {
        self.url == DEFAULT
    }

    /// Returns whether other processes see the same locks.
    pub fn is_shared(&self) -> bool {
        !self.url.starts_with(DEFAULT)
    }

    /// Connects. The store must answer now.
    ///
    /// # Errors
    /// If the store cannot be used: one sentence names it and says what is wrong with it.
    pub async fn connect(&self) -> Result<LockManager, String> {
        let url = match self.url.as_str() {
            DEFAULT => SHARED_DEFAULT,
            url => url,
        };
        LockManager::builder()
            .call_timeout(PATIENCE)
            .connect(url)
            .await
            .map_err(|error| self.explain(&error))
    }

    fn explain(&self, error: &LockError) -> String {
        format!("cannot use {VARIABLE}={self}: {error}")
    }
}

/// Shows the URL without user and password, because it ends up in terminals and logs.
impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.url.split_once("://") else {
            return f.write_str("(not a URL)");
        };
        let place = rest.split(['?', '#']).next().unwrap_or_default();
        let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
        write!(f, "{scheme}://{host}")
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::Store;

    #[test]
    fn a_store_is_shown_without_user_and_password() {
        for (url, shown) in [
            ("memory://", "memory://"),
            ("redis://127.0.0.1/", "redis://127.0.0.1/"),
            ("redis://me:se%40cret@host:1/2", "redis://host:1/2"),
            ("rediss://:se@cret@host/?x=y", "rediss://host/"),
            ("unix:///tmp/s?pass=secret", "unix:///tmp/s"),
            ("secret", "(not a URL)"),
        ] {
            assert_eq!(Store::new(url).to_string(), shown);
        }
    }

    #[test]
    fn only_memory_is_private_to_a_process() {
        assert!(!Store::new("memory://").is_shared());
        assert!(!Store::new("memory://named").is_shared());
        assert!(Store::new("redis://127.0.0.1/").is_shared());
    }
}
