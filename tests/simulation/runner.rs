//! The command line, and many seeds: a process of this program for each, so that each has the same randomness every time.

use std::fmt;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use tests::randomness::{SEED, same_randomness};

use crate::plan::Plan;
use crate::world::World;

/// The longest real time of one seed.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Clone)]
struct Options {
    first: u64,
    seeds: u64,
    time: Option<Duration>,
    /// The one seed to run.
    only: Option<u64>,
    lines: bool,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            first: fastrand::u64(..1_000_000_000),
            seeds: 100,
            time: None,
            only: None,
            lines: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let number = words.next().and_then(|word| word.parse().ok());
                number.ok_or_else(|| format!("{word} needs a number"))
            };
            match word.as_str() {
                "--seed" => options.only = Some(number()?),
                "--lines" => options.lines = true,
                "--from" => options.first = number()?,
                "--seeds" => options.seeds = number()?,
                "--minutes" => {
                    options.time = Some(Duration::from_secs(60 * number()?));
                    options.seeds = u64::MAX;
                }
                "--seconds" => {
                    options.time = Some(Duration::from_secs(number()?));
                    options.seeds = u64::MAX;
                }
                other => return Err(format!("no such flag: {other}")),
            }
        }
        Ok(options)
    }
}

pub(crate) fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let options = match Options::parse(&words) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}; the flags are described at the head of tests/simulation/main.rs");
            return ExitCode::FAILURE;
        }
    };
    let program = Program::here();
    match options.only {
        Some(seed) if std::env::var_os(SEED).is_none() => {
            // It begins anew, with the randomness of the seed.
            let error = program.with_randomness(seed, options.lines).exec();
            panic!("cannot run {program:?}: {error}");
        }
        Some(seed) => one(seed, options.lines),
        None => many(&options, &program),
    }
}

/// Runs one seed, and tells what happened.
fn one(seed: u64, lines: bool) -> ExitCode {
    let plan = Plan::of(seed);
    println!("{plan}");
    let verdict = World::of(plan, lines).run();
    println!("{verdict}");
    if verdict.findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// This program, and the library that gives its processes their randomness.
#[derive(Debug)]
struct Program {
    randomness: PathBuf,
}

impl Program {
    fn here() -> Self {
        let path = std::env::current_exe().expect("the program's path");
        let folder = path.parent().unwrap_or(Path::new("."));
        let randomness = folder.join("same_randomness.so");
        Self {
            randomness: if std::env::var_os(SEED).is_some() {
                randomness
            } else {
                same_randomness(folder)
            },
        }
    }

    fn with_randomness(&self, seed: u64, lines: bool) -> Command {
        // Another build may have put another program in its place.
        let mut command = Command::new("/proc/self/exe");
        command.args(["--seed", &seed.to_string()]);
        command.args(lines.then_some("--lines"));
        command.env("LD_PRELOAD", &self.randomness);
        command.env(SEED, seed.to_string());
        command
    }
}

/// What many seeds came to.
#[derive(Debug, Default)]
struct Sum {
    seeds: u64,
    operations: u64,
    messages: u64,
    virtual_time: Duration,
    failed: Vec<u64>,
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} seeds, {:.1} virtual hours, {} operations, {} messages, {} seeds failed",
            self.seeds,
            self.virtual_time.as_secs_f64() / 3_600.0,
            self.operations,
            self.messages,
            self.failed.len()
        )
    }
}

/// A seed that runs.
struct Running {
    seed: u64,
    child: Child,
    since: Instant,
}

/// Runs seeds side by side, as many as there are processors.
fn many(options: &Options, program: &Program) -> ExitCode {
    let began = Instant::now();
    let places = std::thread::available_parallelism().map_or(2, usize::from);
    let mut running: Vec<Running> = Vec::new();
    let mut sum = Sum::default();
    let mut next = 0;
    loop {
        let is_over = options.time.is_some_and(|time| began.elapsed() > time);
        while running.len() < places && next < options.seeds && !is_over {
            let seed = options.first + next;
            next += 1;
            let mut command = program.with_randomness(seed, false);
            let child = command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            running.push(Running {
                seed,
                child: child.expect("a process for the seed"),
                since: Instant::now(),
            });
        }
        if running.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
        running.retain_mut(|one| {
            let ended = one.child.try_wait().expect("its exit status");
            let Some(status) = ended else {
                if one.since.elapsed() > PATIENCE {
                    let _ = one.child.kill();
                }
                return true;
            };
            sum.seeds += 1;
            sum.note(one, status.success());
            false
        });
    }
    println!("{sum}");
    for seed in &sum.failed {
        println!("scripts/simulate --seed {seed}");
    }
    if sum.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

impl Sum {
    fn note(&mut self, one: &mut Running, is_good: bool) {
        let mut said = String::new();
        if let Some(stdout) = &mut one.child.stdout {
            let _ = stdout.read_to_string(&mut said);
        }
        if let Some([operations, messages, millis]) = said.lines().find_map(numbers) {
            self.operations += operations;
            self.messages += messages;
            self.virtual_time += Duration::from_millis(millis);
        }
        if !is_good {
            if let Some(stderr) = &mut one.child.stderr {
                let _ = stderr.read_to_string(&mut said);
            }
            println!(
                "{said}\nto repeat it: scripts/simulate --seed {}\n",
                one.seed
            );
            self.failed.push(one.seed);
        }
    }
}

/// Reads the line with which a seed ends: its operations, its messages, and its virtual time in ms.
fn numbers(line: &str) -> Option<[u64; 3]> {
    let (operations, rest) = line.split_once(" operations, ")?;
    let (messages, rest) = rest.split_once(" messages, ")?;
    let (millis, _) = rest.split_once(" ms, trace ")?;
    Some([
        operations.parse().ok()?,
        messages.parse().ok()?,
        millis.parse().ok()?,
    ])
}
