//! The library's own scripts, for measurements without the library.

use std::path::Path;

/// Returns the script with its shortcut and the fragments that its header names, joined as the library joins them.
pub(crate) fn whole(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../lock-runtime/src/backend/redis/scripting/lua");
    let read = |path: String| std::fs::read_to_string(folder.join(path)).unwrap();
    let own = read(format!("{name}.lua"));
    let line = |label: &str| {
        let mut lines = own.lines();
        lines.find_map(|line| line.strip_prefix(label)).unwrap()
    };
    let mut whole = match line("-- Flags:").trim() {
        "" => "#!lua\n".to_owned(),
        flags => format!("#!lua flags={flags}\n"),
    };
    let mut fragments: Vec<_> = line("-- Uses:").trim().split(", ").collect();
    if let Ok(shortcut) = std::fs::read_to_string(folder.join(format!("shortcut/{name}.lua"))) {
        let uses = |line: &str| {
            line.strip_prefix("-- Uses:")
                .map(str::trim)
                .map(str::to_owned)
        };
        let uses = shortcut.lines().find_map(uses).unwrap();
        for fragment in uses.split(", ").filter(|name| !name.is_empty()) {
            whole += &read(format!("lib/{fragment}.lua"));
            fragments.retain(|other| *other != fragment);
        }
        whole += &shortcut;
    }
    for fragment in fragments {
        whole += &read(format!("lib/{fragment}.lua"));
    }
    whole + &own
}
