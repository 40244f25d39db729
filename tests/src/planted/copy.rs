//! A copy of the workspace with every bug in it, switched off: one build for all of them.
//!
//! It is built into the directory that the calling program was built into, under another version and another name. In
//! this way, what both depend on is compiled once, and neither build replaces anything of the other.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ALL, stands_once};

/// The variable that names the bug that a client is to have.
pub const CHOSEN: &str = "LOCK_PLANTED_BUG";

/// The function that tells the copy which bug is chosen. `PLANTED` in the edits calls it.
const SWITCH: &str = r#"
pub(crate) fn planted(name: &str) -> bool {
    static CHOSEN: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("LOCK_PLANTED_BUG").ok());
    CHOSEN.as_deref() == Some(name)
}
"#;

/// Builds `program` of the copy, by the same compilers as the calling program. Returns where it is.
///
/// # Errors
/// The message says why the build failed.
pub fn build(program: &str) -> Result<PathBuf, String> {
    let planted = format!("{program}-planted");
    let here = std::env::current_exe().map_err(|error| error.to_string())?;
    let (Some(profile), Some(target)) = (here.parent(), here.ancestors().nth(2)) else {
        return Err(format!("{} is in no target directory", here.display()));
    };
    let copy = target.join("planted");
    check()?;
    let files = files(&workspace()).map_err(|error| error.to_string())?;
    let changes = changes();
    for file in &files {
        take(&copy, file, &changes).map_err(|why| format!("{}: {why}", file.display()))?;
    }
    forget(&copy, &files).map_err(|error| format!("{}: {error}", copy.display()))?;
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(&copy)
        .args(["build", "--quiet", "--offline"]);
    // As `build_bin` in scripts/common.sh does.
    cargo.args(["--workspace", "--all-features", "--examples", "--bin"]);
    cargo.args([&planted, "--target-dir"]).arg(target);
    // Of the package that `cargo run` runs. Build scripts of dependencies that look at them would run again.
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    match cargo.status() {
        Ok(status) if status.success() => Ok(profile.join(planted)),
        Ok(status) => Err(format!("{cargo:?}: {status}")),
        Err(error) => Err(format!("{cargo:?}: {error}")),
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Checks that everything that changes is there, once.
///
/// # Errors
/// The message says what is not, and in which file.
pub fn check() -> Result<(), String> {
    let changes = changes();
    for Change { file, .. } in &changes {
        changed(file, &changes).map_err(|why| format!("{}: {why}", file.display()))?;
    }
    Ok(())
}

/// A text that differs in the copy.
struct Change {
    file: PathBuf,
    is: String,
    becomes: String,
}

fn changes() -> Vec<Change> {
    let change = |file: &str, is: &str, becomes: String| Change {
        file: file.into(),
        is: is.to_owned(),
        becomes,
    };
    let program = |name: &str| {
        let is = format!("name = \"{name}\"");
        change(
            "tests/Cargo.toml",
            &is,
            format!("name = \"{name}-planted\""),
        )
    };
    let version = concat!(
        "[workspace.package]\nversion = \"",
        env!("CARGO_PKG_VERSION")
    );
    let module = "mod observe;";
    let mut changes = vec![
        change("Cargo.toml", version, format!("{version}+planted")),
        program("torture"),
        program("simulation"),
        change(
            "lock-runtime/src/lib.rs",
            module,
            format!("{module}\n{SWITCH}"),
        ),
    ];
    for bug in ALL {
        let switch = format!("crate::planted({:?})", bug.name);
        changes.extend(bug.edits.iter().map(|edit| {
            let file = format!("lock-runtime/src/{}", edit.file);
            change(&file, edit.is, edit.becomes.replace("PLANTED", &switch))
        }));
    }
    changes
}

/// Returns every file of the workspace that may be part of a build, as a path from its root.
fn files(workspace: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(workspace.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            // Cargo builds into such folders. It writes the first file only into a folder that it has made itself.
            let marks = ["CACHEDIR.TAG", ".rustc_info.json"];
            let is_built = marks.iter().any(|mark| entry.path().join(mark).exists());
            if is_hidden || is_built || path == Path::new("target") {
                continue;
            }
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    Ok(files)
}

/// Removes what the workspace had when it was copied before, and no longer has: otherwise, a module that has moved
/// would be there twice.
fn forget(copy: &Path, kept: &[PathBuf]) -> io::Result<()> {
    for file in files(copy)? {
        if !kept.contains(&file) {
            fs::remove_file(copy.join(file))?;
        }
    }
    Ok(())
}

/// Returns a file of the workspace as it is in the copy.
fn changed(file: &Path, changes: &[Change]) -> Result<Vec<u8>, String> {
    let mut bytes = fs::read(workspace().join(file)).map_err(|error| error.to_string())?;
    for Change { is, becomes, .. } in changes.iter().filter(|change| change.file == file) {
        let text = String::from_utf8_lossy(&bytes);
        stands_once(&text, is)?;
        bytes = text.replace(is, becomes).into_bytes();
    }
    Ok(bytes)
}

/// Copies one file, with its changes. A file that is already as it is to be stays untouched, because cargo compiles
/// what is newer than the last build.
fn take(to: &Path, file: &Path, changes: &[Change]) -> Result<(), String> {
    let failed = |error: io::Error| error.to_string();
    let bytes = changed(file, changes)?;
    let to = to.join(file);
    if fs::read(&to).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::create_dir_all(to.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    fs::write(to, bytes).map_err(failed)
}
