//! The first data of a database server. They are made once for all test programs, and copied for each server: making them
//! takes a second of a processor or two, and a copy a twentieth of that.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::launch::{Kind, run};
use crate::unprivileged::directory;

/// Fills the folder `data` in a server's directory. `making` returns the command that makes this folder in any directory.
pub(crate) fn first_data<K: Kind>(dir: &Path, making: impl Fn(&Path) -> Command) {
    /// One test of this process makes them at a time.
    static MAKING: Mutex<()> = Mutex::new(());
    let kept = kept_in(&making(Path::new("data")));
    {
        let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.exists() {
            let scratch = directory();
            run::<K>(&mut making(scratch.path()));
            let own = kept.with_extension(std::process::id().to_string());
            copy::<K>(&scratch.path().join("data"), &own);
            // If another process was faster, its data are as good.
            let _ = std::fs::rename(&own, &kept).or_else(|_| std::fs::remove_dir_all(&own));
        }
    }
    copy::<K>(&kept, &dir.join("data"));
}

/// Returns the folder, beside the test programs, for the data of this command. Another version has another one.
fn kept_in(making: &Command) -> PathBuf {
    let mut key = DefaultHasher::new();
    format!("{making:?}").hash(&mut key);
    let program = std::fs::metadata(making.get_program());
    program
        .and_then(|program| program.modified())
        .ok()
        .hash(&mut key);
    let tests = std::env::current_exe().expect("this program");
    let folder = tests.parent().expect("a folder").join("first-data");
    std::fs::create_dir_all(&folder).expect("a folder for first data");
    folder.join(format!("{:016x}", key.finish()))
}

/// Copies a folder with its owners and rights.
fn copy<K: Kind>(from: &Path, to: &Path) {
    run::<K>(Command::new("cp").arg("-a").arg(from).arg(to));
}
