//! Runs the test programs of the workspace side by side, as `scripts/test` does once cargo has built them.
//!
//! It reads the messages of `cargo test --no-run --message-format=json` from its standard input. Most programs wait most
//! of their time, for leases and for servers, so several of them share the processors. The program `timing` runs after
//! all others, beside none. The output of a program is shown when it ends.
//!
//! The last lines name the slowest programs and tests, what failed, and how many tests passed.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use tests::outcome::{Outcome, Tally};

/// The number of programs that run at a time.
const AT_A_TIME: usize = 3;
/// The number of tests that each program runs at a time, unless `RUST_TEST_THREADS` says otherwise.
const TESTS_AT_A_TIME: usize = 10;
/// The program that waits most, and the number of its tests that run at a time. Otherwise all others would be done long before
/// it.
const WAITS: (&str, usize) = ("faults", 16);
/// The programs that take longest, which begin first.
const LONGEST: [&str; 5] = [
    "behaviour",
    "faults",
    "lock-runtime (unit)",
    "cluster",
    "fail",
];
/// The program that compares times.
const ALONE: &str = "timing";
/// The program of the attribute's mistakes. Its library, trybuild, gives the compiler the last of these flags for the mistakes
/// alone, so it would check all dependencies once without it and once more with it. Cargo prefers the flags of this variable.
const MISTAKES: (&str, &str, &str) = (
    "fail",
    "CARGO_ENCODED_RUSTFLAGS",
    "--cfg\x1ftrybuild\x1f--verbose\x1f-A\x1fdead_code\x1f--diagnostic-width=140",
);

struct Program {
    name: String,
    command: Command,
    tests_at_a_time: usize,
}

fn main() -> ExitCode {
    let began = Instant::now();
    let mut programs = built(std::io::stdin().lock());
    programs.push(documentation());
    assert!(programs.len() > 1, "cargo's messages name no test program");
    programs.sort_by_key(|program| {
        let long = LONGEST.iter().position(|name| *name == program.name);
        long.unwrap_or(LONGEST.len())
    });
    let (alone, together): (VecDeque<_>, _) = programs.into_iter().partition(|it| it.name == ALONE);
    let tally = Mutex::new(Tally::default());
    for (queue, at_a_time) in [(together, AT_A_TIME), (alone, 1)] {
        let queue: Mutex<VecDeque<Program>> = Mutex::new(queue);
        std::thread::scope(|scope| {
            for _ in 0..at_a_time {
                scope.spawn(|| {
                    // The lock is not held while a program runs.
                    let next = || queue.lock().expect("no panic").pop_front();
                    while let Some(program) = next() {
                        let outcome = run(program);
                        tally.lock().expect("no panic").add(outcome);
                    }
                });
            }
        });
    }
    let tally = tally.into_inner().expect("no panic");
    println!("{}", tally.report(began.elapsed()));
    ExitCode::from(u8::from(!tally.is_good()))
}

/// Returns the test programs that cargo's messages name.
fn built(messages: impl Read) -> Vec<Program> {
    let asked = std::env::var("RUST_TEST_THREADS").ok();
    let asked = asked.map(|number| number.parse().expect("RUST_TEST_THREADS is a number"));
    let folders = Command::new("rustc")
        .args(["--print", "sysroot", "--print", "target-libdir"])
        .output();
    let folders = String::from_utf8(folders.expect("rustc").stdout).expect("two folders");
    let (toolchain, libraries) = folders.trim_end().split_once('\n').expect("two folders");
    // As below cargo, tests that call cargo or rustc elsewhere call those of this checkout.
    let before = std::env::var_os("PATH").unwrap_or_default();
    let path = [Path::new(toolchain).join("bin")].into_iter();
    let path = std::env::join_paths(path.chain(std::env::split_paths(&before))).expect("a path");
    let mut programs = Vec::new();
    for line in BufReader::new(messages).lines() {
        let line = line.expect("cargo's messages");
        let Ok(message) = serde_json::from_str::<serde_json::Value>(&line) else {
            continue;
        };
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        let (Some(executable), Some(true)) = (
            text(&message["executable"]),
            message["profile"]["test"].as_bool(),
        ) else {
            continue;
        };
        let manifest = PathBuf::from(text(&message["manifest_path"]).expect("a manifest"));
        let folder = manifest.parent().expect("a folder");
        let target = &message["target"];
        let mut name = text(&target["name"]).expect("a name");
        if target["kind"][0] != "test" {
            name = format!("{} (unit)", name.replace('_', "-"));
        }
        let mut command = Command::new(executable);
        command
            .current_dir(folder)
            .env("CARGO_MANIFEST_DIR", folder)
            // The tests of a proc-macro crate load the standard library.
            .env("LD_LIBRARY_PATH", libraries)
            .env("PATH", &path);
        let usual = if name == WAITS.0 {
            WAITS.1
        } else {
            TESTS_AT_A_TIME
        };
        let tests_at_a_time = if name == ALONE {
            1
        } else {
            asked.unwrap_or(usual)
        };
        command.env("RUST_TEST_THREADS", tests_at_a_time.to_string());
        let (mistakes, variable, flags) = MISTAKES;
        if name == mistakes {
            command.env(variable, flags);
        }
        programs.push(Program {
            name,
            command,
            tests_at_a_time,
        });
    }
    programs
}

/// The examples of the documentation, which rustdoc builds and runs.
fn documentation() -> Program {
    let mut command = Command::new("cargo");
    command.args([
        "test",
        "--workspace",
        "--all-features",
        "--doc",
        "--no-fail-fast",
    ]);
    Program {
        name: "documentation".into(),
        command,
        // Those of one crate begin when those of another have ended, so their times are not known.
        tests_at_a_time: 0,
    }
}

/// Runs a program, and shows what it said when it ends.
fn run(mut program: Program) -> Outcome {
    let began = Instant::now();
    let (mut said, stdout) = std::io::pipe().expect("a pipe");
    let stderr = stdout.try_clone().expect("a pipe");
    program
        .command
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr);
    let mut child = program.command.spawn().unwrap_or_else(|error| {
        panic!("{}: {error}", program.name);
    });
    // The pipe ends when nobody writes to it any more.
    drop(program.command);
    let mut outcome = Outcome::new(program.name, program.tests_at_a_time);
    let mut text = Vec::new();
    let mut lines = BufReader::new(&mut said);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).expect("its output") > 0 {
        outcome.saw(&String::from_utf8_lossy(&line), began.elapsed());
        text.append(&mut line);
    }
    let status = child.wait().expect("its end");
    outcome.end(status.success(), began.elapsed());
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "\n=== {}", outcome.title());
    let _ = out.write_all(&text);
    outcome
}
