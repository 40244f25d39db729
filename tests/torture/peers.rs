//! Other libraries in the place of ours: mutexes alone, under the same faults, judged by the same checks.
//!
//! The clients of such a round are drivers, one file each in `bench/`, which `scripts/torture-others` builds:
//!
//! `DRIVER TOPOLOGY KEYS URL RESOURCE_URL NUMBER SEED`
//!
//! A driver has a task for each of the `KEYS`, which commas separate. A task acquires its key and touches the resource as
//! `tests::workload` does, and the first letters of the key say how: `hot` is held shortly, `long` for up to 3 s and
//! renewed by the library's own means, `whole` to the end of its lease. The lock of the key `hot-1` is called `lock:hot-1`.
//! The driver writes `ready` when it is connected, then lines of `tests::judge::Log`, and `stopped` after the line `stop`.
//! An acquire that has not returned 10 s after that is reported as `none hangs`. The scripts of the resource are in the
//! environment. A hold is certain for as long as its library says so.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tests::judge::Terms;
use tokio::runtime::Runtime;

use crate::faults;
use crate::keys::{Tasks, Workload};
use crate::options::Options;
use crate::resource::{ENTER, SET};
use crate::round::{LONG_RECOVERY, Outcome, Plan};
use crate::schedule::{pass_of, this_program, wanted};
use crate::site::Topology;

/// The number of strikes of a round's fault.
const STRIKES: u32 = 3;
/// The name of our own rows.
const OURS: &str = "lock-runtime";
/// The checks of the round itself. If one of them finds something, nothing was shown of any library.
const OF_THE_ROUND: [&str; 4] = ["clients", "fault-fired", "log", "operations"];

/// Another library.
#[derive(Debug)]
pub(crate) struct Peer {
    name: &'static str,
    /// The program and its first arguments. `{}` is the folder of the drivers.
    driver: &'static [&'static str],
    /// What is built last of it in that folder.
    built: &'static str,
    topologies: &'static [Topology],
    /// Whether the server tells its waiters of releases.
    listens: bool,
    has_tokens: bool,
    /// Whether a holder learns that the server lost its lock, at the latest at its release.
    tells: bool,
    /// What goes wrong with it under which fault, and the check that has to see it. A check that sees nothing in others
    /// may be blind.
    known: &'static [(&'static str, &'static str)],
}

const REDISSON: &[&str] = &[
    "java",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xmx256m",
    "-cp",
    "{}/java/jars/*",
    "bench.Torture",
];

const PEERS: [Peer; 4] = [
    Peer {
        name: "rslock",
        driver: &["{}/rust/debug/torture-rslock"],
        built: "rust/debug/torture-rslock",
        topologies: &[Topology::Single],
        listens: false,
        has_tokens: false,
        tells: false,
        // It goes on to use a connection that does not answer, and its `using` looks at no deadline before it runs on.
        known: &[("half-open", "errors"), ("process-frozen", "overlap")],
    },
    Peer {
        name: "redsync",
        driver: &["{}/go/torture-redsync"],
        built: "go/torture-redsync",
        topologies: &[Topology::Single, Topology::Sentinel],
        listens: false,
        has_tokens: false,
        tells: true,
        known: &[],
    },
    Peer {
        name: "redisson",
        driver: REDISSON,
        built: "java/jars/driver.jar",
        topologies: &[Topology::Single, Topology::Sentinel],
        listens: true,
        has_tokens: false,
        tells: true,
        // A holder learns only at its release that its lease has ended.
        known: &[("process-frozen", "overlap")],
    },
    Peer {
        name: "redisson-fenced",
        driver: REDISSON,
        built: "java/jars/driver.jar",
        topologies: &[Topology::Single],
        listens: true,
        has_tokens: true,
        tells: true,
        // The counter of tokens begins again from 1.
        known: &[("process-frozen", "overlap"), ("server-forgets", "token")],
    },
];

impl Peer {
    /// Returns what is known of it under the fault and was not seen.
    fn unseen(&self, outcome: &Outcome) -> Vec<&'static str> {
        let known = self
            .known
            .iter()
            .filter(|(fault, _)| *fault == outcome.name);
        let is_seen = |check: &str| outcome.findings.iter().any(|it| it.check == check);
        known
            .map(|(_, check)| *check)
            .filter(|check| !is_seen(check))
            .collect()
    }

    /// Returns whether a check asks for something that the library itself promises.
    fn is_held_to(&self, check: &str, terms: &Terms) -> bool {
        match check {
            "overlap" => self.tells || !terms.loses_locks,
            "token" | "stale-write" | "refused-holder" => self.has_tokens,
            // These are our own promises: how soon waiters come to a lock, and that messages flow.
            "takeover" | "gap" | "change" | "wake-ups" | "admitted" => false,
            _ => true,
        }
    }
}

/// A library, and the folder of the drivers.
#[derive(Debug, Clone)]
pub(crate) struct Driver {
    peer: &'static Peer,
    folder: PathBuf,
}

impl Driver {
    /// Returns whether the driver was built, and says so if it was not.
    fn is_there(&self) -> bool {
        let is_there = self.folder.join(self.peer.built).exists();
        if !is_there {
            let (name, folder) = (self.peer.name, self.folder.display());
            println!("{name} is left out: there is no driver in {folder}");
        }
        is_there
    }

    /// Returns the command that starts a client.
    pub(crate) fn command(
        &self,
        workload: Workload,
        url: &str,
        resource: &str,
        number: usize,
        seed: &str,
    ) -> Command {
        let folder = self.folder.display().to_string();
        let words = self.peer.driver.iter();
        let mut words = words.map(|word| word.replace("{}", &folder));
        let mut command = Command::new(words.next().expect("a program"));
        let tasks = workload.tasks_of(number).into_iter();
        let keys: Vec<&str> = tasks.flat_map(|work| work.keys).copied().collect();
        command
            .args(words)
            .args([workload.topology.name(), &keys.join(","), url, resource])
            .args([&number.to_string(), seed])
            .env("REGISTER_ENTER", ENTER)
            .env("REGISTER_SET", SET)
            .env("FENCED", if self.peer.has_tokens { "yes" } else { "" });
        command
    }
}

/// Runs rounds of ours and of others, and prints what became of each. Returns whether ours were as they have to be, and
/// what is known of others was seen.
pub(crate) fn torture(options: &Options, folder: &Path, runtime: &Runtime) -> bool {
    let mut names = PEERS.iter().map(|peer| peer.name).chain([OURS]);
    if let Some(name) = &options.peer
        && names.all(|known| known != name)
    {
        println!("no library is called {name}");
        return false;
    }
    println!("seed {}", options.seed);
    let program = this_program();
    let ours = std::iter::once(None);
    let theirs = PEERS.iter().map(|peer| {
        let folder = folder.to_owned();
        Some(Driver { peer, folder })
    });
    let mut contenders: Vec<Option<Driver>> = ours.chain(theirs).collect();
    contenders.retain(|driver| driver.as_ref().is_none_or(Driver::is_there));
    let mut table = Table::default();
    for (round, number) in pass_of(options, 0).into_iter().zip(1..) {
        let (topology, faults) = (round.topology, round.faults);
        // Pairs are left out, because nobody could say which of the two did it.
        if ![Topology::Single, Topology::Sentinel].contains(&topology) || faults.len() > 1 {
            continue;
        }
        for driver in &contenders {
            let peer = driver.as_ref().map(|driver| driver.peer);
            let name = peer.map_or(OURS, |peer| peer.name);
            let supports = peer.is_none_or(|peer| peer.topologies.contains(&topology));
            let listens = peer.is_none_or(|peer| peer.listens);
            let mut same = faults::of(topology, listens);
            same.retain(|fault| faults.iter().any(|it| it.name() == fault.name()));
            let plan = Plan {
                number,
                seed: options.seed.wrapping_add(number * 1_000_003),
                workload: Workload {
                    topology,
                    tasks: Tasks::Mutexes,
                },
                strikes: STRIKES,
                faults: same,
                planted: None,
                program: &program,
                peer: driver.as_ref(),
            };
            let is_asked = options.peer.as_ref().is_none_or(|only| only == name);
            let happens = plan.faults.len() == faults.len();
            if !is_asked || !supports || !happens || !wanted(options, &plan) {
                continue;
            }
            let terms = plan.terms();
            let mut outcome = plan.run(runtime);
            outcome
                .findings
                .retain(|finding| listens || finding.check != "wake-ups");
            for check in peer.map(|peer| peer.unseen(&outcome)).unwrap_or_default() {
                println!("NOT SEEN by [{check}]: what is known of {name} under this fault");
                table.is_bad = true;
            }
            let held_to = |check: &str| peer.is_none_or(|peer| peer.is_held_to(check, &terms));
            say(options, name, &outcome, held_to);
            table.add(name, &outcome, held_to);
        }
    }
    println!("\n{}", table.text(options.seed));
    table.is_good()
}

fn say(options: &Options, name: &str, outcome: &Outcome, held_to: impl Fn(&str) -> bool) {
    println!(
        "round {} {} {} {name}: {} holds, {} overlaps, {} losses. {}",
        outcome.number,
        outcome.workload.topology.name(),
        outcome.name,
        outcome.log.holds.len(),
        outcome.overlaps.len(),
        outcome.log.losses.len(),
        outcome.proofs.join("; "),
    );
    for finding in &outcome.findings {
        let word = if held_to(finding.check) {
            "FOUND"
        } else {
            "not promised"
        };
        println!("  {word} {finding}");
    }
    if !outcome.findings.is_empty() {
        let (seed, round) = (options.seed, outcome.number);
        println!("  again: --seed {seed} --round {round} --peer {name}");
    }
}

/// What became of one library under one fault.
#[derive(Default)]
struct Row {
    name: &'static str,
    fault: String,
    holds: usize,
    overlaps: usize,
    longest: Duration,
    untold: usize,
    lost_updates: u64,
    left: usize,
    /// The longest time after a strike until a key was held again.
    back: Option<Duration>,
    hang: u64,
    found: Vec<&'static str>,
    not_promised: Vec<&'static str>,
}

#[derive(Default)]
struct Table {
    /// The rows of each round.
    rows: BTreeMap<(Topology, u64), Vec<Row>>,
    /// Whether a round was none, a check found something in ours, or did not see what is known of others.
    is_bad: bool,
}

impl Table {
    fn add(&mut self, name: &'static str, outcome: &Outcome, held_to: impl Fn(&str) -> bool) {
        let mut row = Row {
            name,
            fault: outcome.name.clone(),
            holds: outcome.log.holds.len(),
            overlaps: outcome.overlaps.len(),
            back: outcome.recoveries.iter().map(|(_, time)| *time).max(),
            longest: outcome.overlaps.iter().copied().max().unwrap_or_default(),
            untold: outcome.overlaps.len() - outcome.told,
            lost_updates: outcome.lost_updates,
            left: outcome.left,
            hang: outcome.log.refusals.get("hangs").copied().unwrap_or(0),
            ..Row::default()
        };
        for finding in &outcome.findings {
            let found = match held_to(finding.check) {
                true => &mut row.found,
                false => &mut row.not_promised,
            };
            found.push(finding.check);
        }
        let is_void = row.found.iter().any(|check| OF_THE_ROUND.contains(check));
        self.is_bad |= is_void || name == OURS && !row.found.is_empty();
        let key = (outcome.workload.topology, outcome.number);
        self.rows.entry(key).or_default().push(row);
    }

    /// Returns whether there were rounds, and all were as they have to be.
    fn is_good(&self) -> bool {
        !self.is_bad && !self.rows.is_empty()
    }

    /// Returns the tables as Markdown, one for each topology.
    fn text(&self, seed: u64) -> String {
        let mut text = format!(
            "Each row again: `scripts/torture-others --seed {seed}` and what its last column says.\n"
        );
        let mut last = None;
        for ((topology, round), rows) in &self.rows {
            if last.replace(topology) != Some(topology) {
                let _ = write!(
                    text,
                    "\n| {} | library | holds | overlaps (longest) | not told | updates lost | locks left | \
                     back after | hang | found by | again |\n\
                     | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |\n",
                    topology.name()
                );
            }
            for row in rows {
                let _ = writeln!(text, "{row} `--round {round} --peer {}` |", row.name);
            }
        }
        text
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = |number: u64| match number {
            0 => String::new(),
            number => number.to_string(),
        };
        let longest = match self.overlaps {
            0 => String::new(),
            all => format!("{all} ({})", ms(self.longest)),
        };
        let back = match self.found.contains(&"recovery") {
            true => format!("not in {LONG_RECOVERY:?}"),
            false => self.back.map(ms).unwrap_or_default(),
        };
        let not_promised = self.not_promised.iter().map(|check| format!("({check})"));
        let found = self.found.iter().map(|check| (*check).to_owned());
        let found: Vec<String> = found.chain(not_promised).collect();
        write!(
            f,
            "| {} | {} | {} | {longest} | {} | {} | {} | {} | {} | {} |",
            self.fault,
            self.name,
            self.holds,
            some(self.untold as u64),
            some(self.lost_updates),
            some(self.left as u64),
            back,
            some(self.hang),
            found.join(", "),
        )
    }
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}
