//! A review site with a flash sale: a whole service that lives on Redis and on these locks.
//!
//! `cargo run -p examples --features review-site --bin review-site`; `--serve` stays up, `--help` tells the rest. Each
//! recipe is a file; its text says which structure of Redis it uses, and whether it takes a lock, and why or why not.
//!
//! | recipe | what it is | lock |
//! | --- | --- | --- |
//! | `sign_in.rs` | a code by phone, a session that every process knows | no |
//! | `shop_cache.rs` | pages from the cache; nothing old after a write | for each shop |
//! | `bloom.rs` | ids that do not exist are sent away | no |
//! | `ids.rs` | ids that all processes draw | no |
//! | `sale_locked.rs` | the sale, with a payment between look and order | for each user |
//! | `sale_fenced.rs` | the sale, in a transaction that refuses late clicks | for each user |
//! | `sale_stream.rs` | the sale, decided in Redis, written behind it | for each user, by the writers |
//! | `likes.rs`, `follows.rs` | once each; whom two follow | no |
//! | `reviews.rs`, `feed.rs` | pushed to followers, read in pages | no |
//! | `nearby.rs` | shops within 5 km | no |
//! | `check_ins.rs`, `visitors.rs` | days in a row; different visitors | no |
//! | `housekeeper.rs` | one process of all keeps house | of an election |
//! | `processes.rs`, `process.rs`, `lock_view.rs` | several processes behind one port; who holds which lock | none of their own |
//!
//! Around them: `site.rs` puts them together, `server.rs` has the routes, `page.html` the page, `proofs/` what is proved.

mod args;
mod bloom;
mod check_ins;
mod error;
mod feed;
mod follows;
mod housekeeper;
mod ids;
mod likes;
mod lock_view;
mod nearby;
mod process;
mod processes;
mod proofs;
mod redis_server;
mod reviews;
mod sale;
mod sale_fenced;
mod sale_locked;
mod sale_stream;
mod server;
mod shop_cache;
mod sign_in;
mod site;
mod visitors;

use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;

use examples::Failure;

use args::Task;
use processes::{Fleet, asked_to_end};
use site::Home;

const INTERRUPTED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match args::parse() {
        Ok(Task::Help) => {
            print!("{}", args::HELP);
            Ok(ExitCode::SUCCESS)
        }
        Ok(Task::Prove { processes }) => prove(processes).await,
        Ok(Task::Serve { port, processes }) => serve(port, processes).await,
        Ok(Task::Process { database }) => {
            let served = process::serve(&database).await;
            served.map(|()| ExitCode::SUCCESS)
        }
        Err(error) => Err(format!("{error} (see --help)").into()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("review-site: {error}");
        ExitCode::from(2)
    })
}

async fn prove(processes: usize) -> Result<ExitCode, Failure> {
    let end = asked_to_end()?;
    let home = Home::create().await?;
    println!("The site lives in {} and a SQLite file.", home.store);
    let proved = tokio::select! {
        proved = proofs::all(&home, processes) => Some(proved),
        () = end => None,
    };
    home.clear().await?;
    Ok(match proved {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("review-site: {error}");
            ExitCode::FAILURE
        }
        None => ExitCode::from(INTERRUPTED),
    })
}

async fn serve(port: u16, processes: usize) -> Result<ExitCode, Failure> {
    let end = asked_to_end()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .map_err(|error| format!("cannot listen on port {port}: {error} (see --port)"))?;
    let home = Home::create().await?;
    let served = serve_at(&home, listener, processes, end).await;
    home.clear().await?;
    served.map(|()| ExitCode::SUCCESS)
}

async fn serve_at(
    home: &Home,
    listener: TcpListener,
    processes: usize,
    end: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let address = listener.local_addr()?;
    let mut fleet = Fleet::start(processes, listener, home).await?;
    for process in &fleet.processes {
        println!("process {} has the locks of {}", process.pid, process.locks);
    }
    println!("The site lives in {}. Open http://{address}", home.store);
    tokio::select! {
        () = end => {}
        () = fleet.all_ended() => {}
    }
    fleet.stop().await
}
