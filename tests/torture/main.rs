//! Tortures the locks: several processes contend through a proxy while faults strike, and everything that they did is
//! checked afterwards.
//!
//! | flag | what it does |
//! | --- | --- |
//! | `--minutes N` | rounds of every fault, then of random pairs, again and again, for so long; else one short pass |
//! | `--topology NAME` | only this one: `single`, `sentinel`, `cluster`, `quorum`, `guarded`, `postgres` or `mysql` |
//! | `--seed S` | the same faults, times and choices as in an earlier run; the machine's scheduling is not repeated |
//! | `--round K` | only this round of that seed |
//! | `--fault NAME` | only this fault (or `calm`, `pairs`) |
//! | `--planted-bugs` | broken scripts, statements and clients in place of the true ones: succeeds only if each is caught |
//! | `--bug NAME`, `--some N` | only this planted bug; only N of them, which the seed chooses |
//! | `--list` | prints only the names of planted bugs, if everything that they change is there |
//! | `--tables` | prints only the tables that docs/evidence.md has from here |
//! | `--report DIR` | writes `torture.md` and `torture.svg`, the timeline of a round that failed or of the one with most losses |
//! | `--peers DIR` | mutexes alone, of ours and of the libraries whose drivers `scripts/torture-others` built there |
//! | `--peer NAME` | only this library |
//! | `--histories DIR` | writes what was said of locks and registers, as JSON lines, for `scripts/verify` |
//!
//! | file | what is in it |
//! | --- | --- |
//! | `site.rs`, `replicated.rs`, `clustered.rs` | the tortured servers; another topology is another constructor here |
//! | `server.rs`, `database.rs`, `statements.rs` | what faults ask of a server; another database is another `Tortured` |
//! | `faults/` | one small type per fault, which proves that it struck |
//! | `client.rs`, `keys.rs`, `resource.rs` | the processes, their keys, and the resource that they guard; their work is `tests::workload` |
//! | `crew.rs` | starting, killing and hearing them |
//! | `options.rs`, `schedule.rs` | the command line, and the choice of rounds |
//! | `round.rs`, `checks.rs`, `delays.rs` | one round, and the checks of it beside those of `tests::judge` |
//! | `planted/` | bugs that the checks have to catch |
//! | `peers.rs` | other libraries in the place of ours: their drivers, what they are held to, their table |
//! | `evidence.rs` | the tables of docs/evidence.md |
//! | `report.rs`, `timeline.rs` | the report that a person reads |

mod checks;
mod client;
mod clustered;
mod crew;
mod database;
mod delays;
mod evidence;
mod faults;
mod keys;
mod options;
mod peers;
mod planted;
mod replicated;
mod report;
mod resource;
mod round;
mod schedule;
mod server;
mod site;
mod statements;
mod timeline;

use std::process::ExitCode;
use std::time::Duration;

use keys::{Tasks, Workload};
use site::Topology;

/// The shortest lease that is renewed, so that faults show soon.
const LEASE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    // A client with one worker would believe no message about a reservation.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    if let [
        "client",
        topology,
        tasks,
        url,
        resource,
        number,
        seed,
        checks,
    ] = words[..]
    {
        let workload = Workload {
            topology: Topology::named(topology).expect("a topology"),
            tasks: Tasks::named(tasks).expect("tasks"),
        };
        let number = number.parse().expect("a client's number");
        let seed = seed.parse().expect("a seed");
        let checked = checks == "checked";
        runtime.block_on(client::run(workload, url, resource, number, seed, checked));
        return ExitCode::SUCCESS;
    }
    match options::Options::parse(&words) {
        Ok(options) => schedule::run(&options, &runtime),
        Err(why) => {
            eprintln!("{why}; the flags are described at the head of tests/torture/main.rs");
            ExitCode::FAILURE
        }
    }
}
