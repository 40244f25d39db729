//! The syntax of settings, which is the same in the environment and in files.

use std::path::PathBuf;
use std::time::Duration;

use crate::values::{ClusterChannels, Replicas, duration};

/// A value that is written as a text. The errors name no value that may be secret.
pub(super) trait Setting: Sized {
    fn read(text: &str) -> Result<Self, String>;
}

impl Setting for String {
    fn read(text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }
}

impl Setting for Vec<String> {
    fn read(text: &str) -> Result<Vec<String>, String> {
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }
}

impl Setting for PathBuf {
    fn read(text: &str) -> Result<PathBuf, String> {
        match text {
            "" => Err("it names no file".to_owned()),
            path => Ok(path.into()),
        }
    }
}

impl Setting for Duration {
    fn read(text: &str) -> Result<Duration, String> {
        duration::parse(text)
    }
}

impl Setting for bool {
    fn read(text: &str) -> Result<bool, String> {
        text.parse()
            .map_err(|_| format!("`{text}` is neither `true` nor `false`"))
    }
}

impl Setting for usize {
    fn read(text: &str) -> Result<usize, String> {
        text.parse()
            .map_err(|_| format!("`{text}` is no whole number, or too large"))
    }
}

impl Setting for Replicas {
    fn read(text: &str) -> Result<Replicas, String> {
        match (text, text.parse()) {
            ("off", _) => Ok(Replicas::off()),
            ("majority", _) => Ok(Replicas::majority()),
            (_, Ok(replicas)) => Ok(Replicas::at_least(replicas)),
            _ => Err(format!(
                "`{text}` is none of `off`, `majority` and a number"
            )),
        }
    }
}

impl Setting for ClusterChannels {
    fn read(text: &str) -> Result<ClusterChannels, String> {
        match text {
            "sharded" => Ok(ClusterChannels::Sharded),
            "classic" => Ok(ClusterChannels::Classic),
            "both" => Ok(ClusterChannels::Both),
            _ => Err(format!(
                "`{text}` is none of `sharded`, `classic` and `both`"
            )),
        }
    }
}
