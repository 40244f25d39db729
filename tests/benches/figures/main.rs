//! The figures that the README quotes, each beside a baseline in the same run.
//!
//! `cargo bench -p tests --bench figures [-- NAME …]`. The names are `attribute`, `uncontended`, `many-keys`,
//! `hot-key`, `processes`, `fair`, `frozen`, `idle`, `ids`, `keep-for`, `holds` and `fleet`. Without a name, all of them run.
//!
//! `… -- starved [SECONDS] [LOAD]` does not run with all the others: see `starved.rs`.
//!
//! The bare baseline is the library's own two scripts, called through the same client crate on one connection.
#![allow(missing_docs)]

mod attribute;
mod bare;
mod bare_list;
mod fair;
mod fleet;
mod frozen;
mod holds;
mod hot_key;
mod idle;
mod ids;
mod keep_for;
mod many_keys;
mod processes;
mod scripts;
mod starved;
mod stats;
mod uncontended;

fn main() {
    if std::env::args().any(|arg| arg == starved::SPIN) {
        starved::spin();
    }
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    if let [mode, rest @ ..] = args.as_slice()
        && mode == processes::CHILD
    {
        return processes::child(rest);
    }
    match args.as_slice() {
        [mode, rest @ ..] if mode == "starved" => return starved::run(rest),
        [mode, rest @ ..] if mode == "processes" => return processes::run(rest),
        _ => {}
    }
    let wanted = |name: &str| args.is_empty() || args.iter().any(|arg| arg == name);
    if wanted("attribute") {
        attribute::run();
    }
    if wanted("uncontended") {
        uncontended::run();
    }
    if wanted("many-keys") {
        many_keys::run();
    }
    if wanted("hot-key") {
        hot_key::one_process();
    }
    if wanted("processes") {
        processes::run(&[]);
    }
    if wanted("fair") {
        fair::run();
    }
    if wanted("frozen") {
        frozen::run();
    }
    if wanted("idle") {
        idle::run();
    }
    if wanted("ids") {
        ids::run();
    }
    if wanted("keep-for") {
        keep_for::run();
    }
    if wanted("holds") {
        holds::run();
    }
    if wanted("fleet") {
        fleet::run();
    }
}
