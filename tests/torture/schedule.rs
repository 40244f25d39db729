//! The rounds that are run, and the messages about them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use fastrand::Rng;
use tokio::runtime::Runtime;

use crate::evidence;
use crate::faults::{self, Fault, Side};
use crate::keys::Workload;
use crate::options::Options;
use crate::peers;
use crate::planted::{self, Planted};
use crate::report::Report;
use crate::round::{Outcome, Plan};
use crate::site::Topology;
use crate::timeline;

/// The number of random pairs in one pass.
const PAIRS: usize = 4;
/// The number of these on one server in the short pass.
const SHORT_PAIRS: usize = 2;
/// The number of faults of a quorum in the short pass.
const SHORT: usize = 3;
/// The number of faults of a database in the short pass.
const SHORT_DATABASE: usize = 4;
/// The greatest number of rounds for a planted bug, which may need luck to show.
const TRIES: u64 = 6;
/// The number of times that the fault of a planted bug strikes in each of these rounds, or that a calm round goes on,
/// until the bug is caught.
const PLANTED_STRIKES: u32 = 12;
/// The same for the first calm round of each bug, because some bugs show when it has ended.
const SHORT_CALM: u32 = 4;

pub(crate) fn run(options: &Options, runtime: &Runtime) -> ExitCode {
    let good = if options.tables {
        print!("{}", evidence::tables());
        true
    } else if options.planted {
        planted_bugs(options, runtime)
    } else if let Some(drivers) = &options.peers {
        peers::torture(options, drivers, runtime)
    } else {
        torture(options, runtime)
    };
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn torture(options: &Options, runtime: &Runtime) -> bool {
    let started = Instant::now();
    println!("seed {}", options.seed);
    let program = this_program();
    let mut report = Report::default();
    let mut shown: Option<Outcome> = None;
    let more = |pass| match options.time {
        Some(time) => started.elapsed() < time,
        None => pass == 0,
    };
    let (mut number, mut written) = (0, 0);
    let times = if options.time.is_some() { 3 } else { 1 };
    for pass in 0.. {
        if !more(pass) || options.round.is_some_and(|wanted| wanted < number) {
            break;
        }
        for round in pass_of(options, pass) {
            number += 1;
            let Round {
                topology, faults, ..
            } = round;
            let strikes = if faults.is_empty() { 1 } else { times };
            let plan = Plan {
                number,
                seed: options.seed.wrapping_add(number * 1_000_003),
                workload: Workload::all_of(topology),
                strikes,
                faults,
                planted: None,
                program: &program,
                peer: None,
            };
            let in_time = options.time.is_none_or(|time| started.elapsed() < time);
            let left_out = round.long && options.is_short();
            if !in_time || left_out || !wanted(options, &plan) {
                continue;
            }
            let outcome = plan.run(runtime);
            say(options, &outcome);
            if let Some(folder) = &options.histories {
                match outcome.write_histories(folder, options.seed) {
                    Ok(files) => written += files,
                    Err(error) => {
                        println!("torture: no histories in {}: {error}", folder.display());
                        return false;
                    }
                }
            }
            report.add(&outcome);
            let worth =
                |outcome: &Outcome| (!outcome.findings.is_empty(), outcome.log.losses.len());
            if shown
                .as_ref()
                .is_none_or(|shown| worth(shown) < worth(&outcome))
            {
                shown = Some(outcome);
            }
        }
    }
    println!("\n{}\n{}", report.table(), report.bounds());
    if let Some(folder) = &options.histories {
        println!("torture: {written} histories in {}", folder.display());
    }
    let Some(shown) = shown else {
        println!("torture: no such round");
        return false;
    };
    let written = write(options, &report, &shown);
    println!("torture: {}; seed {}", report.summary(), options.seed);
    written && report.is_good()
}

/// A round to come.
pub(crate) struct Round {
    pub(crate) topology: Topology,
    pub(crate) faults: Vec<Box<dyn Fault>>,
    /// Whether the one short pass over all topologies leaves it out. The other topologies' clients fail as one server's
    /// do, and a quorum has to grow old before each round.
    long: bool,
}

/// Returns the rounds of a pass: for each topology a calm round, each fault alone in random order, and some pairs. They
/// are the same whether one topology is asked for or all, so that a round's number stays the same.
pub(crate) fn pass_of(options: &Options, pass: u64) -> Vec<Round> {
    let mut rng = Rng::with_seed(options.seed.wrapping_add(pass));
    let mut rounds = Vec::new();
    for topology in Topology::ALL {
        let mut alone = faults::all(topology);
        rng.shuffle(&mut alone);
        let mut add = |faults, long| {
            rounds.push(Round {
                topology,
                faults,
                long,
            });
        };
        add(Vec::new(), topology == Topology::Guarded);
        for (number, fault) in alone.into_iter().enumerate() {
            let long = match topology {
                Topology::Single => false,
                Topology::Sentinel | Topology::Cluster => fault.side() == Side::Clients,
                Topology::Quorum => number >= SHORT,
                Topology::Guarded => fault.name() != "master-cut-off",
                Topology::Postgres | Topology::Mysql => number >= SHORT_DATABASE,
            };
            add(vec![fault], long);
        }
        for number in 0..PAIRS {
            let pair = faults::pair(&mut rng, topology);
            add(pair, topology != Topology::Single || number >= SHORT_PAIRS);
        }
    }
    rounds
}

pub(crate) fn wanted(options: &Options, plan: &Plan<'_>) -> bool {
    let name = plan.name();
    options.topologies.contains(&plan.workload.topology)
        && options.round.is_none_or(|round| round == plan.number)
        && options
            .fault
            .as_ref()
            .is_none_or(|fault| *fault == name || fault == "pairs" && plan.faults.len() == 2)
}

fn say(options: &Options, outcome: &Outcome) {
    let proofs = outcome.proofs.join("; ");
    println!(
        "round {} {} {}: {} operations, {} overlaps, {} losses. {proofs}",
        outcome.number,
        outcome.workload.topology.name(),
        outcome.name,
        outcome.log.operations(),
        outcome.overlaps.len(),
        outcome.log.losses.len(),
    );
    for finding in &outcome.findings {
        println!("  VIOLATION {finding}");
    }
    if !outcome.findings.is_empty() {
        println!(
            "  again: --seed {} --round {}{}",
            options.seed,
            outcome.number,
            // How often a fault strikes depends on this flag.
            options.time.map_or("", |_| " --minutes 1")
        );
    }
}

fn write(options: &Options, report: &Report, shown: &Outcome) -> bool {
    let Some(dir) = &options.report else {
        return true;
    };
    let text = format!(
        "# Torture, seed {}\n\n{}\n{}\n{}\n",
        options.seed,
        report.table(),
        report.bounds(),
        report.summary()
    );
    let written = std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(dir.join("torture.md"), text))
        .and_then(|()| std::fs::write(dir.join("torture.svg"), timeline::draw(shown)));
    if let Err(error) = &written {
        println!("{}: {error}", dir.display());
    }
    written.is_ok()
}

fn planted_bugs(options: &Options, runtime: &Runtime) -> bool {
    if let Err(why) = planted::check() {
        println!("a planted bug does not fit any more: {why}");
        return false;
    }
    let bugs = chosen_bugs(options);
    if options.list {
        for (_, bug) in &bugs {
            println!("{:10} {}", bug.topology().name(), bug.name);
        }
        return !bugs.is_empty();
    }
    println!("seed {}", options.seed);
    let mut broken = this_program();
    if bugs.iter().any(|(_, bug)| bug.in_clients().is_some()) {
        println!("building clients with bugs in them");
        match tests::planted::build("torture") {
            Ok(program) => broken = program,
            Err(why) => {
                println!("no clients with planted bugs: {why}");
                return false;
            }
        }
    }
    let mut caught = 0;
    for (number, bug) in &bugs {
        let began = Instant::now();
        let by = (0..TRIES).find_map(|attempt| {
            let seed = options.seed.wrapping_add(*number as u64 * 100 + attempt);
            let strikes = match (bug.faults, attempt) {
                ([], 0) => SHORT_CALM,
                _ => PLANTED_STRIKES,
            };
            catch(bug, seed, strikes, &broken, runtime)
        });
        caught += usize::from(by.is_some());
        match by {
            Some(what) => println!("caught in {:.0?}: {}: {what}", began.elapsed(), bug.name),
            None => println!("NOT CAUGHT: {} (expected: {:?})", bug.name, bug.caught_by),
        }
    }
    let all = bugs.len();
    println!(
        "torture: {caught} of {all} planted bugs caught; seed {}",
        options.seed
    );
    caught == all && all > 0
}

/// Returns the bugs that are asked for, each with its number among all.
fn chosen_bugs(options: &Options) -> Vec<(usize, &'static Planted)> {
    let mut bugs: Vec<_> = planted::all().enumerate().collect();
    bugs.retain(|(_, bug)| options.topologies.contains(&bug.topology()));
    if let Some(one) = &options.bug {
        bugs.retain(|(_, bug)| bug.name == one);
    }
    if let Some(some) = options.some {
        Rng::with_seed(options.seed).shuffle(&mut bugs);
        bugs.truncate(usize::try_from(some).unwrap_or(usize::MAX));
    }
    bugs
}

/// Runs a round with the bug. Returns what caught the bug, if what was to catch it did.
fn catch(
    bug: &Planted,
    seed: u64,
    strikes: u32,
    broken: &Path,
    runtime: &Runtime,
) -> Option<String> {
    let topology = bug.topology();
    let faults = bug.faults.iter();
    let faults = faults.filter_map(|name| faults::named(name, topology));
    let program = this_program();
    let plan = Plan {
        number: 0,
        seed,
        workload: Workload {
            topology,
            tasks: bug.tasks,
        },
        strikes,
        faults: faults.collect(),
        planted: Some(bug),
        program: if bug.in_clients().is_some() {
            broken
        } else {
            &program
        },
        peer: None,
    };
    let outcome = plan.run(runtime);
    let (findings, planted) = (outcome.findings, bug.is_planted(outcome.rewrites));
    match bug.what_caught_it(&findings) {
        Some(right) if planted => Some(right.to_string()),
        _ => {
            println!("  not yet (planted: {planted}): {findings:?}");
            None
        }
    }
}

pub(crate) fn this_program() -> PathBuf {
    std::env::current_exe().expect("the path of this program")
}
