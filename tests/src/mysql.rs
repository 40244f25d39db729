//! MySQL itself in the place of MariaDB, if a folder of its programs is named.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of `mysqld` and `mysql` that all tests of this run use.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os("MYSQL_BIN_DIR").map(PathBuf::from)
}

/// Whether the servers are MySQL's.
pub fn is_meant() -> bool {
    folder().is_some()
}

/// Whether a test is to be left out because it is about MariaDB's replicas.
pub fn is_left_out() -> bool {
    if is_meant() {
        eprintln!("left out on MySQL");
    }
    is_meant()
}

/// Its name of a program of MariaDB's.
pub(crate) fn program(name: &str) -> &str {
    match name {
        "mariadb" => "mysql",
        _ => "mysqld",
    }
}

/// Makes what is in a new server's folder.
pub(crate) fn initialize(command: &mut Command, dir: &Path) {
    command
        .args(["--no-defaults", "--initialize-insecure"])
        .arg("--secure-file-priv=")
        .arg(format!("--datadir={}", dir.join("data").display()))
        .arg(format!("--tmpdir={}", dir.display()));
}

/// What only its server is told.
pub(crate) const SETTINGS: [&str; 3] = ["--mysqlx=OFF", "--secure-file-priv=", "--tls-version="];
