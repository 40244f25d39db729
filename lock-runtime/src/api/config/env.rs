//! The environment: a variable for each setting.

use std::ffi::OsString;

use super::LockConfig;
use crate::values::{LockError, config};

impl LockConfig {
    /// Reads the variables that begin with `LOCK_`: `LOCK_URL`, `LOCK_NAMESPACE`, `LOCK_LEASE` and so on.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`], which names the variable and shows no password: for a value that makes no sense,
    /// and for a variable that begins with `LOCK_` and is no setting, because it may be misspelt. If the environment
    /// has other variables that begin with `LOCK_`, choose a prefix of your own.
    pub fn from_env() -> Result<LockConfig, LockError> {
        LockConfig::from_env_with_prefix("LOCK_")
    }

    /// Does the same as [`from_env`](LockConfig::from_env), with another prefix: with `SHOP_LOCKS_`, the lease is
    /// `SHOP_LOCKS_LEASE`.
    ///
    /// # Errors
    /// The same as [`from_env`](LockConfig::from_env). [`LockError::InvalidConfig`] also for an empty prefix.
    pub fn from_env_with_prefix(prefix: &str) -> Result<LockConfig, LockError> {
        if prefix.is_empty() {
            return Err(config("the prefix of the environment variables is empty"));
        }
        LockConfig::from_variables(prefix, std::env::vars_os())
    }

    pub(super) fn from_variables(
        prefix: &str,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<LockConfig, LockError> {
        let mut settings = LockConfig::default();
        for (variable, value) in variables {
            let variable = variable.to_string_lossy();
            let Some(rest) = variable.strip_prefix(prefix) else {
                continue;
            };
            let known = |name: &&&str| rest == name.to_uppercase();
            let Some(name) = LockConfig::NAMES.iter().find(known) else {
                let all: Vec<_> = LockConfig::NAMES
                    .iter()
                    .map(|name| format!("{prefix}{}", name.to_uppercase()))
                    .collect();
                return Err(config(format!(
                    "the environment variable `{variable}` is no setting; there are {}",
                    all.join(", ")
                )));
            };
            let set = match value.to_str() {
                Some(text) => settings.set_checked(name, text),
                None => Err("its value is no text in UTF-8".to_owned()),
            };
            set.map_err(|why| config(format!("the environment variable `{variable}`: {why}")))?;
        }
        Ok(settings)
    }
}
