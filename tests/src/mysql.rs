//! MySQL itself in the place of MariaDB, if a variable names the folder of its programs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the folder of `mysqld` and `mysql` that all tests of this run use.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os("MYSQL_BIN_DIR").map(PathBuf::from)
}

/// Returns whether the servers are MySQL's.
pub fn is_meant() -> bool {
    folder().is_some()
}

/// Returns whether a test must be left out because it is about MariaDB's replicas.
pub fn is_left_out() -> bool {
    if is_meant() {
        eprintln!("left out on MySQL");
    }
    is_meant()
}

/// Returns MySQL's name of a program of MariaDB's.
pub(crate) fn program(name: &str) -> &str {
    match name {
        "mariadb" => "mysql",
        _ => "mysqld",
    }
}

/// Makes the command create the data of a new server.
pub(crate) fn initialize(command: &mut Command, dir: &Path) {
    command
        .args(["--no-defaults", "--initialize-insecure"])
        .arg("--secure-file-priv=")
        .arg(format!("--datadir={}", dir.join("data").display()))
        .arg(format!("--tmpdir={}", dir.display()));
}

/// Settings that only MySQL's server is given.
pub(crate) const SETTINGS: [&str; 3] = ["--mysqlx=OFF", "--secure-file-priv=", "--tls-version="];
