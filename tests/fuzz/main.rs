//! The fuzz targets, for libFuzzer. `scripts/fuzz` builds and runs them: without its flags, this program has no
//! targets.
#![cfg_attr(fuzzing, no_main)]
#![allow(missing_docs, unreachable_pub)]

#[cfg(fuzzing)]
mod durations;
// `templates` takes a file of `lock-macros`, which looks for this one here.
#[cfg(fuzzing)]
#[path = "../../lock-macros/src/errors.rs"]
#[allow(dead_code)]
mod errors;
#[cfg(fuzzing)]
mod replies;
#[cfg(fuzzing)]
mod templates;
#[cfg(fuzzing)]
mod urls;
#[cfg(fuzzing)]
mod victims;

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    static TARGET: std::sync::LazyLock<fn(&[u8])> =
        std::sync::LazyLock::new(|| match std::env::var("FUZZ_TARGET").as_deref() {
            Ok("victims") => victims::run,
            Ok("urls") => |input| on_text(input, urls::run),
            Ok("replies") => replies::run,
            Ok("templates") => |input| on_text(input, templates::run),
            Ok("durations") => |input| on_text(input, durations::run),
            other => panic!("no such target: {other:?}"),
        });
    TARGET(input);
});

#[cfg(fuzzing)]
fn on_text(input: &[u8], run: fn(&str)) {
    if let Ok(text) = std::str::from_utf8(input) {
        run(text);
    }
}

#[cfg(not(fuzzing))]
fn main() {
    eprintln!("scripts/fuzz builds and runs the fuzz targets");
    std::process::exit(2);
}
