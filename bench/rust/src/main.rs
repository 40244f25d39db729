//! Acquires and releases locks with one of the libraries in Rust, and prints what it measured as one line of JSON.
//!
//! `lock-bench PEER URL WORKLOAD TASKS SECONDS HOLD_MS [REGISTER]`: see bench/README.md.

mod peers;
mod recorder;
mod register;
mod report;
mod session;

use std::time::Duration;

use peers::lock_runtime::{End, LockRuntime};
use peers::{bare::Bare, distkit::Distkit, rslock::Rslock};
use session::{Kind, Session, run};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [peer, url, workload, tasks, seconds, hold_ms, register @ ..] = arguments.as_slice() else {
        eprintln!("usage: lock-bench PEER URL own|hot|wait TASKS SECONDS HOLD_MS [REGISTER]");
        std::process::exit(2);
    };
    let session = Session {
        kind: match workload.as_str() {
            "hot" => Kind::Hot,
            "wait" => Kind::Wait,
            _ => Kind::Own,
        },
        tasks: tasks.parse().expect("TASKS is a number"),
        length: Duration::from_secs_f64(seconds.parse().expect("SECONDS is a number")),
        hold: Duration::from_millis(hold_ms.parse().expect("HOLD_MS is a number")),
        register: register.first().cloned(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let line = runtime.block_on(async {
        match peer.as_str() {
            "lock-runtime" => run(LockRuntime::connect(url, End::Awaited).await, session).await,
            "lock-runtime-dropped" => {
                run(LockRuntime::connect(url, End::Dropped).await, session).await
            }
            "rslock" => run(Rslock::connect(url), session).await,
            "distkit" => run(Distkit::connect(url).await, session).await,
            "bare" => run(Bare::connect(url).await, session).await,
            other => panic!("no peer is called {other}"),
        }
    });
    println!("{line}");
}
