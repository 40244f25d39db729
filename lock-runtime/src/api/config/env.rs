//! The environment: a variable for each setting.

use std::ffi::OsString;

use super::LockConfig;
use crate::values::{LockError, config};

impl LockConfig {
    /// Reads the variables that begin with `LOCK_`: `LOCK_URL`, `LOCK_NAMESPACE`, `LOCK_LEASE` and so on.
    ///
    /// An empty variable counts as one that is not set, except `LOCK_NAMESPACE`, for bare names. So do those that
    /// Kubernetes sets for a Service whose name begins with `lock`: `LOCK_SERVICE_HOST`, `LOCK_PORT`,
    /// `LOCK_PORT_6379_TCP_ADDR`, `LOCK_REDIS_SERVICE_PORT_TLS` and so on.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`], which names the variable and shows no password: for a value that makes no sense,
    /// and for a variable that begins with `LOCK_` and is no setting, because it may be misspelt: the error proposes the
    /// setting that is nearest. If the environment has other variables that begin with `LOCK_`, choose a prefix of your own.
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
            // An empty namespace is a setting: bare names, as Redisson uses them.
            if value.is_empty() && rest != "NAMESPACE" {
                continue;
            }
            let known = |name: &&&str| rest == name.to_uppercase();
            let Some(name) = LockConfig::NAMES.iter().find(known) else {
                if is_of_a_service(rest) {
                    continue;
                }
                return Err(config(format!(
                    "the environment variable `{variable}` is no setting; {}",
                    proposal(prefix, rest)
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

/// Whether Kubernetes sets such a variable for a Service, in the form of
/// <https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables>: `{SVC}_SERVICE_HOST`,
/// `{SVC}_SERVICE_PORT` and, with a port's name, `{SVC}_SERVICE_PORT_{NAME}`; Docker's older `{SVC}_PORT` and
/// `{SVC}_PORT_{PORT}_{PROTOCOL}` with its parts. The prefix may be all of the Service's name, or its beginning.
fn is_of_a_service(rest: &str) -> bool {
    let rest = format!("_{rest}");
    if rest.ends_with("_SERVICE_HOST") || rest.ends_with("_PORT") {
        return true;
    }
    if rest.contains("_SERVICE_PORT_") {
        return true;
    }
    let Some((_, of_port)) = rest.rsplit_once("_PORT_") else {
        return false;
    };
    let mut parts = of_port.split('_');
    let is_port = parts.next().is_some_and(|port| port.parse::<u16>().is_ok());
    let is_protocol = matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"));
    let is_part = matches!(parts.next(), None | Some("ADDR" | "PORT" | "PROTO"));
    is_port && is_protocol && is_part && parts.next().is_none()
}

/// Returns what a misspelt variable may have meant. If its name is like no setting's, returns all of them.
fn proposal(prefix: &str, rest: &str) -> String {
    let names = LockConfig::NAMES.iter().map(|name| name.to_uppercase());
    let nearest = names
        .clone()
        .map(|name| (strsim::osa_distance(&name, &rest.to_uppercase()), name))
        .min();
    match nearest {
        // Two of three letters are right.
        Some((distance, name)) if distance * 3 <= name.len() => {
            format!("did you mean `{prefix}{name}`?")
        }
        _ => {
            let all: Vec<_> = names.map(|name| format!("{prefix}{name}")).collect();
            format!("there are {}", all.join(", "))
        }
    }
}
