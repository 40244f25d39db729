//! The description of a manager for people who look at locks: the name of its program, its host, its process.

use std::time::Duration;

use crate::values::error::{LockError, config, steers};

/// The length of the longest name of an app or a host. Longer names of other clients are cut.
const MOST_BYTES: usize = 64;

/// The time for which the store keeps a record that is not written again.
pub(crate) const RECORD_TTL: Duration = Duration::from_secs(90);
/// The interval at which the record of a manager that holds or waits is written, or a little less.
pub(crate) const RECORD_BEAT: Duration = Duration::from_secs(30);

/// The record that a store keeps about a client. Anybody with rights on the keys may have written it: it is for people,
/// and decides nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientRecord {
    pub(crate) app: String,
    /// Empty if it is not known.
    pub(crate) host: String,
    pub(crate) process_id: u32,
    /// The version of this library.
    pub(crate) version: String,
}

impl ClientRecord {
    /// The record of this process. `app`: checked; `None` takes the file name of the executable.
    pub(crate) fn of_this_process(app: Option<&str>) -> ClientRecord {
        ClientRecord {
            app: app.map_or_else(executable, str::to_owned),
            host: presentable(&host()),
            process_id: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// Refuses a name of an app that would not fit into a line of a log.
///
/// # Errors
/// [`LockError::InvalidConfig`].
pub(crate) fn check_app(app: Option<&str>) -> Result<(), LockError> {
    let Some(app) = app else { return Ok(()) };
    if app.trim().is_empty() || app.len() > MOST_BYTES || app.contains(steers) {
        return Err(config(format!(
            "the name of an app has 1 to {MOST_BYTES} bytes of printable text, not {app:?}"
        )));
    }
    Ok(())
}

/// Returns another client's text, as a line of a log may show it.
pub(crate) fn presentable(text: &str) -> String {
    let mut bytes = 0;
    let shown = text.chars().map(|character| {
        if steers(character) {
            char::REPLACEMENT_CHARACTER
        } else {
            character
        }
    });
    let fits = |character: &char| {
        bytes += character.len_utf8();
        bytes <= MOST_BYTES
    };
    shown.take_while(fits).collect()
}

fn executable() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    match presentable(&name.to_string_lossy()) {
        name if name.trim().is_empty() => "unknown".to_owned(),
        name => name,
    }
}

#[cfg(unix)]
fn host() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    let names = ["HOSTNAME", "COMPUTERNAME"].map(std::env::var);
    names.into_iter().flatten().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_app_is_one_line_of_64_bytes_at_most() {
        let longest = "a".repeat(64);
        for good in ["orders-api", "größe", "a b", &longest] {
            check_app(Some(good)).unwrap();
        }
        let long = "a".repeat(65);
        for bad in ["", "  ", "a\nb", "\u{1b}[31m", &long] {
            let error = check_app(Some(bad)).unwrap_err();
            assert!(matches!(error, LockError::InvalidConfig { .. }), "{error}");
            assert!(!error.to_string().contains(char::is_control), "{error}");
        }
    }

    #[test]
    fn texts_of_others_are_cut_to_one_short_line() {
        assert_eq!(presentable("a\nb\u{1b}"), "a\u{fffd}b\u{fffd}");
        let cut = presentable(&"ß".repeat(100));
        assert_eq!(cut.len(), 64);
        assert!(presentable(&["a", &"ß".repeat(100)].concat()).len() <= 64);
    }

    #[test]
    fn a_process_is_known_by_its_executable_its_host_and_its_id() {
        let record = ClientRecord::of_this_process(None);
        let program = std::env::args().next().unwrap();
        assert!(program.ends_with(&record.app), "{program} {record:?}");
        assert!(record.app.len() > 2, "{record:?}");
        #[cfg(target_os = "linux")]
        assert_eq!(
            record.host,
            std::fs::read_to_string("/proc/sys/kernel/hostname")
                .unwrap()
                .trim_end()
        );
        assert_eq!(record.process_id, std::process::id());
        let record = ClientRecord::of_this_process(Some("orders-api"));
        assert_eq!(record.app, "orders-api");
    }
}
