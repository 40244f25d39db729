//! Servers that do not run as root: there they run as nobody.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

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

/// Gives a directory to that user alone.
pub(crate) fn give_to_server(dir: &Path) {
    if is_root() {
        std::os::unix::fs::chown(dir, Some(NOBODY), Some(NOBODY)).expect("give the directory away");
    }
    std::fs::set_permissions(dir, Permissions::from_mode(0o700)).expect("close the directory");
}

/// Makes the command append what it says to a file: nobody reads its output.
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
