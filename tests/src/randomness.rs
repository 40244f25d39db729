//! A library in C that decides what the operating system's random generator gives to a process.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable with the seed of the random bytes. Without it, all bytes are the same.
pub const SEED: &str = "SAME_RANDOMNESS";

/// Builds the library into `folder`. A process that loads it by `LD_PRELOAD` draws the same random bytes each time.
pub fn same_randomness(folder: &Path) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/same_randomness.c");
    let built = folder.join("same_randomness.so");
    // Built under a name of its own: another process may have loaded the one that is there.
    let building = folder.join(format!("same_randomness.{}.so", std::process::id()));
    // Rust links by this compiler, too.
    let cc = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&building)
        .args([source, "-ldl"])
        .status();
    assert!(
        cc.is_ok_and(|status| status.success()),
        "`cc` cannot build {source}: install a C compiler (apt-get install gcc libc6-dev)"
    );
    std::fs::rename(&building, &built).expect("the library is moved into place");
    built
}
