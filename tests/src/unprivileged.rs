//! Servers that do not run as root. If the tests run as root, these run as nobody.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs the command as the user who may run servers.
pub(crate) fn as_server(command: &mut Command) {
    if is_root() {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
}

/// Makes a new directory that belongs to that user alone.
pub(crate) fn directory() -> TempDir {
    directory_in(&std::env::temp_dir())
}

/// Makes such a directory in a folder.
pub(crate) fn directory_in(folder: &Path) -> TempDir {
    let dir = crate::launch::directory_in(folder);
    give_to_server(dir.path(), 0o700);
    dir
}

/// Gives a file or a directory to that user alone.
pub(crate) fn give_to_server(path: &Path, mode: u32) {
    if is_root() {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("give it away");
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("close it to others");
}

/// Makes the command append its output to a file, because nobody reads it.
pub(crate) fn logged(command: &Command, log: &Path) -> Command {
    let shell = format!("exec \"$0\" \"$@\" >>'{}' 2>&1", log.display());
    let mut logged = Command::new("sh");
    logged
        .arg("-c")
        .arg(shell)
        .arg(command.get_program())
        .args(command.get_args());
    as_server(&mut logged);
    logged
}
