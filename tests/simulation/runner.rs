//! The command line, and many seeds: a process of this program for each, so that each has the same randomness every time.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tests::planted::{self, Bug, CHOSEN};
use tests::randomness::{SEED, same_randomness};

use crate::plan::Plan;
use crate::world::{OVER, World};

/// The longest real time of one seed. Only a thread that is blocked for ever takes as long, also on a machine that leaves this
/// program hardly any time.
const PATIENCE: Duration = Duration::from_secs(600);
/// The most processor time of one turn of the world, which takes a millisecond or two. More takes only a task that runs on
/// without a wait: no virtual time passes then.
const LONGEST_TURN: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
struct Options {
    /// The first seed, if it is not any.
    first: Option<u64>,
    seeds: u64,
    time: Option<Duration>,
    /// The one seed to run.
    only: Option<u64>,
    lines: bool,
    /// The folder for histories that another judge reads.
    histories: Option<PathBuf>,
    /// Whether each seed runs twice, to see that both times are alike.
    twice: bool,
    planted: bool,
    /// How often each planted bug is looked for.
    trials: u64,
    /// The one planted bug to look for.
    bug: Option<String>,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            first: None,
            seeds: 100,
            time: None,
            only: None,
            lines: false,
            histories: None,
            twice: false,
            planted: false,
            trials: 1,
            bug: None,
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
                "--from" => options.first = Some(number()?),
                "--seeds" => options.seeds = number()?,
                "--seconds" => {
                    options.time = Some(Duration::from_secs(number()?));
                    options.seeds = u64::MAX;
                }
                "--minutes" => {
                    options.time = Some(Duration::from_secs(60 * number()?));
                    options.seeds = u64::MAX;
                }
                "--histories" => {
                    let folder = words.next().ok_or("--histories needs a folder")?;
                    options.histories = Some(folder.into());
                }
                "--twice" => options.twice = true,
                "--planted-bugs" => {
                    options.planted = true;
                    options.seeds = 10_000;
                }
                "--trials" => options.trials = number()?,
                "--bug" => {
                    let name = words.next().ok_or("--bug needs a name")?;
                    options.bug = Some(name.clone());
                }
                other => return Err(format!("no such flag: {other}")),
            }
        }
        Ok(options)
    }

    fn first(&self) -> u64 {
        self.first.unwrap_or_else(|| fastrand::u64(..1_000_000_000))
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
    if let Some(seed) = options.only
        && std::env::var_os(SEED).is_some()
    {
        return one(seed, &options);
    }
    let program = Program::here(&options);
    if let Some(seed) = options.only {
        // It begins anew, with the randomness of the seed.
        let mut command = program.command(seed);
        let error = command.args(options.lines.then_some("--lines")).exec();
        panic!("cannot run {program:?}: {error}");
    }
    let is_good = if options.planted {
        look_for_planted_bugs(&options, program)
    } else {
        many(&options, &program)
    };
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs one seed, and tells what happened.
fn one(seed: u64, options: &Options) -> ExitCode {
    let plan = Plan::of(seed);
    println!("{plan}");
    let world = World::of(plan, options.lines);
    watch_turns(world.turns.clone());
    let verdict = world.run(options.histories.as_deref());
    println!("{verdict}");
    if verdict.findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Ends this process if a turn does not come to its end. The time is that of the processor, so a busy machine changes nothing.
fn watch_turns(turns: Arc<AtomicU64>) {
    let computed =
        || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
    std::thread::spawn(move || {
        let (mut turn, mut since) = (0, computed());
        while turn != OVER {
            std::thread::sleep(Duration::from_millis(100));
            let now = turns.load(Relaxed);
            if now != turn {
                (turn, since) = (now, computed());
            } else if computed() - since > LONGEST_TURN {
                println!("\n  [hang] turn {turn} has taken {LONGEST_TURN:?} of the processor");
                std::process::exit(1);
            }
        }
    });
}

/// The program that runs one seed, and the library that gives its processes their randomness.
#[derive(Debug)]
struct Program {
    path: PathBuf,
    randomness: PathBuf,
    bug: Option<&'static str>,
    histories: Option<PathBuf>,
}

impl Program {
    fn here(options: &Options) -> Self {
        let here = std::env::current_exe().expect("the program's path");
        Self {
            // Another build may put another program in its place.
            path: "/proc/self/exe".into(),
            randomness: same_randomness(here.parent().unwrap_or(Path::new("."))),
            bug: None,
            histories: options.histories.clone(),
        }
    }

    fn command(&self, seed: u64) -> Command {
        let mut command = Command::new(&self.path);
        command.args(["--seed", &seed.to_string()]);
        if let Some(folder) = &self.histories {
            command.arg("--histories").arg(folder);
        }
        command.env("LD_PRELOAD", &self.randomness);
        command.env(SEED, seed.to_string());
        command.envs(self.bug.map(|bug| (CHOSEN, bug)));
        command
    }
}

/// What a seed came to.
struct Outcome {
    seed: u64,
    is_good: bool,
    said: String,
}

/// A seed that runs.
struct Running {
    seed: u64,
    child: Child,
    since: Instant,
}

impl Running {
    fn start(program: &Program, seed: u64) -> Self {
        let mut command = program.command(seed);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Self {
            seed,
            child: child.expect("a process for the seed"),
            since: Instant::now(),
        }
    }

    /// Returns what it came to, if it has.
    fn ended(&mut self) -> Option<Outcome> {
        let Some(status) = self.child.try_wait().expect("its exit status") else {
            if self.since.elapsed() > PATIENCE {
                let _ = self.child.kill();
            }
            return None;
        };
        let mut said = String::new();
        if let (Some(stdout), Some(stderr)) = (&mut self.child.stdout, &mut self.child.stderr) {
            let _ = stdout.read_to_string(&mut said);
            let _ = stderr.read_to_string(&mut said);
        }
        if status.signal() == Some(9) {
            said.push_str("\n  [hang] it did not come to its end");
        }
        Some(Outcome {
            seed: self.seed,
            is_good: status.success(),
            said,
        })
    }
}

/// Runs seeds side by side, as many as there are processors, for as long as `goes_on` says so after each.
fn run(
    program: &Program,
    seeds: impl IntoIterator<Item = u64>,
    mut goes_on: impl FnMut(Outcome) -> bool,
) {
    let places = std::thread::available_parallelism().map_or(2, usize::from);
    let mut seeds = seeds.into_iter();
    let mut running: Vec<Running> = Vec::new();
    let mut begins = true;
    loop {
        while begins && running.len() < places {
            match seeds.next() {
                Some(seed) => running.push(Running::start(program, seed)),
                None => begins = false,
            }
        }
        if running.is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
        running.retain_mut(|one| match one.ended() {
            Some(outcome) => {
                begins &= goes_on(outcome);
                false
            }
            None => true,
        });
    }
}

/// Returns whether this seed is good.
fn once(program: &Program, seed: u64) -> bool {
    let mut is_good = false;
    run(program, [seed], |outcome| {
        is_good = outcome.is_good;
        true
    });
    is_good
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

/// Runs seeds, and prints what failed. True if nothing did.
fn many(options: &Options, program: &Program) -> bool {
    let began = Instant::now();
    let mut sum = Sum::default();
    let times = if options.twice { 2 } else { 1 };
    let first = options.first();
    let seeds = first..first.saturating_add(options.seeds);
    let seeds = seeds.flat_map(|seed| std::iter::repeat_n(seed, times));
    let mut first_time = BTreeMap::new();
    run(program, seeds, |outcome| {
        sum.note(&outcome);
        if options.twice {
            let Outcome { seed, said, .. } = outcome;
            match first_time.remove(&seed) {
                None => drop(first_time.insert(seed, said)),
                Some(other) if other == said => {}
                Some(other) => {
                    println!("two runs of seed {seed} differ:\n{other}\n{said}");
                    sum.failed.push(seed);
                }
            }
        }
        options.time.is_none_or(|time| began.elapsed() < time)
    });
    println!("{sum}");
    for seed in &sum.failed {
        println!("scripts/simulate --seed {seed}");
    }
    sum.failed.is_empty()
}

impl Sum {
    fn note(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        let Outcome { seed, said, .. } = outcome;
        if let Some([operations, messages, millis]) = said.lines().find_map(numbers) {
            self.operations += operations;
            self.messages += messages;
            self.virtual_time += Duration::from_millis(millis);
        }
        if !outcome.is_good {
            println!("{said}\nto repeat it: scripts/simulate --seed {seed}\n");
            self.failed.push(*seed);
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

/// Looks for each bug until one of its checks finds it, in a seed that is good without the bug. True if all are found each
/// time. Without a first seed, the seed that is known to show a bug is tried before any other.
fn look_for_planted_bugs(options: &Options, mut program: Program) -> bool {
    program.path = match planted::build("simulation") {
        Ok(path) => path,
        Err(why) => {
            eprintln!("the copy of the library with the bugs in it: {why}");
            return false;
        }
    };
    let is_chosen = |bug: &&Bug| match &options.bug {
        Some(name) => bug.name == name,
        None => bug.is_above_the_trait(),
    };
    let mut all_found = true;
    let first = options.first();
    println!("| planted bug | seeds, median | worst | by |\n| --- | ---: | ---: | --- |");
    for bug in planted::ALL.iter().filter(is_chosen) {
        program.bug = Some(bug.name);
        let known = bug.seed.filter(|_| options.first.is_none());
        let mut took = Vec::new();
        let mut checks = Vec::new();
        for trial in 0..options.trials {
            let first = first + trial * options.seeds;
            let seeds = known.into_iter().chain(first..first + options.seeds);
            let (mut tried, mut found) = (0, None);
            run(&program, seeds, |outcome| {
                tried += 1;
                let failed: Vec<&str> = outcome.said.lines().filter_map(check).collect();
                let is_caught = failed.iter().any(|it| bug.caught_by.contains(it));
                // Several seeds run at once, and another one may be found first.
                if !is_caught && known == Some(outcome.seed) {
                    eprintln!("{}: its seed does not show it any more", bug.name);
                }
                if is_caught && found.is_none() {
                    found = Some((tried, outcome.seed));
                    checks.extend(failed.into_iter().map(str::to_owned));
                }
                found.is_none()
            });
            if let Some((tried, seed)) = found {
                took.push(tried);
                program.bug = None;
                let is_good = once(&program, seed);
                program.bug = Some(bug.name);
                if !is_good {
                    println!("seed {seed} fails without the bug, too: {}", bug.name);
                    all_found = false;
                }
            }
        }
        took.sort_unstable();
        checks.sort_unstable();
        checks.dedup();
        let missed = options.trials - took.len() as u64;
        all_found &= missed == 0;
        let median = took.get(took.len() / 2).copied().unwrap_or(0);
        let worst = took.last().copied().unwrap_or(0);
        let missed = match missed {
            0 => String::new(),
            missed => format!(" MISSED {missed} times in {} seeds", options.seeds),
        };
        println!(
            "| {} | {median} | {worst} | {}{missed} |",
            bug.name,
            checks.join(", ")
        );
    }
    all_found
}

/// Reads the name of the check from a line about a finding.
fn check(line: &str) -> Option<&str> {
    let (name, _) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    Some(name)
}
