//! Simulates processes that lock: everything above the store runs as it is shipped, and one thread drives its clocks, its
//! network and its store by a seed. `scripts/simulate` builds and runs it.
//!
//! | flag | what it does |
//! | --- | --- |
//! | `--seeds N`, `--from S` | runs N seeds, the first of which is S |
//! | `--minutes M` | runs seeds for so long |
//! | `--seed S` | runs one seed and tells what happened; `--lines` tells every step of every task |
//! | `--histories DIR` | writes what was said of locks and registers, as JSON lines, for `scripts/verify` |
//! | `--twice` | runs each seed twice, and compares all that was said |
//! | `--planted-bugs` | looks for each planted bug, `--trials N` times, or for `--bug NAME` alone; without `--from`, first by the seed that is known to show it |
//!
//! | file | what is in it |
//! | --- | --- |
//! | `plan.rs` | what a seed stands for: processes, their work, the network, and what goes wrong when |
//! | `network.rs` | what becomes of each message |
//! | `world.rs` | the turns of processes and stores, and what strikes them |
//! | `work.rs` | the tasks of a process, and the resource that their locks guard |
//! | `body.rs` | the tasks that torture does not have: bodies that the library runs under a lock |
//! | `verdict.rs` | the checks beside those that torture has |
//! | `runner.rs` | many seeds, a process of this program for each |

#[cfg(simulation)]
mod body;
#[cfg(simulation)]
mod network;
#[cfg(simulation)]
mod plan;
#[cfg(simulation)]
mod runner;
#[cfg(simulation)]
mod verdict;
#[cfg(simulation)]
mod work;
#[cfg(simulation)]
mod world;

#[cfg(simulation)]
fn main() -> std::process::ExitCode {
    runner::main()
}

#[cfg(not(simulation))]
fn main() -> std::process::ExitCode {
    eprintln!("this program needs the cfg `simulation`: run scripts/simulate");
    std::process::ExitCode::FAILURE
}
