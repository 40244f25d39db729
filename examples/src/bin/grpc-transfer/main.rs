//! A bank over gRPC: a transfer locks two accounts, and a watcher may have only one stream.
//!
//! `cargo run --features grpc --bin grpc-transfer`, or with `LOCK_URL=redis://127.0.0.1/` in front to keep the locks in
//! Redis. It starts the service on a free port of the loopback interface and calls it over HTTP/2.
//!
//! Read `service.rs` first: it is the part to start from. This file has the calls and the facts that they prove.
//! `bank.rs` is generated; `bank.proto` says how.

#[rustfmt::skip]
#[allow(unreachable_pub, clippy::all)]
mod bank;
mod service;

use std::net::Ipv4Addr;
use std::process::ExitCode;

use examples::{Failure, prove};
use lock_runtime::{LockManager, key};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Status, Streaming};

use bank::bank_client::BankClient;
use bank::bank_server::BankServer;
use bank::{Balance, TransferRequest, WatchRequest};
use service::Service;

/// The number of transfers in each direction.
const TRANSFERS: usize = 20;

type Client = BankClient<Channel>;

#[tokio::main]
async fn main() -> ExitCode {
    examples::run("grpc-transfer", serve_and_prove).await
}

async fn serve_and_prove(locks: &LockManager) -> Result<(), Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let bank = Service::new(locks.clone(), &[("ada", 100), ("bob", 100), ("carol", 0)]);
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::builder()
        .layer(service::one_stream_per_watcher(locks.clone()))
        .add_service(BankServer::new(bank.clone()))
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
            drop(stopped.await);
        });
    let server = tokio::spawn(server);
    // The tour owns the client: its connection is closed before the server waits for the last one.
    let outcome = tour(locks, &bank, Client::connect(url).await?).await;
    drop(stop);
    server.await??;
    outcome
}

async fn tour(locks: &LockManager, bank: &Service, client: Client) -> Result<(), Failure> {
    println!("\n1. {TRANSFERS} transfers from ada to bob and {TRANSFERS} back, at the same time.");
    let mut transfers = JoinSet::new();
    for _ in 0..TRANSFERS {
        transfers.spawn(transfer(client.clone(), "ada", "bob", 3));
        transfers.spawn(transfer(client.clone(), "bob", "ada", 2));
    }
    let mut done = 0;
    while let Some(transferred) = transfers.join_next().await {
        transferred??;
        done += 1;
    }
    let mut ada = watch(&client, "ada", "first").await?;
    let balance = next(&mut ada).await?;
    prove(
        (done, balance, bank.total()) == (2 * TRANSFERS, 80, 200),
        "40 of 40 are done, no two waited for each other; ada has 80, nothing is lost",
    )?;

    println!("\n2. Ada's account is watched while she gives carol 10 three times.");
    let mut seen = vec![balance];
    for _ in 0..3 {
        transfer(client.clone(), "ada", "carol", 10).await?;
        seen.push(next(&mut ada).await?);
    }
    prove(
        seen == [80, 70, 60, 50],
        format!("the stream said {seen:?}"),
    )?;

    println!("\n3. The same watcher opens a second stream.");
    let refused = watch(&client, "bob", "first").await.err();
    let code = refused.map(|status| {
        println!("   {:?}: {}", status.code(), status.message());
        status.code()
    });
    drop(ada);
    let second = watch(&client, "bob", "first").await;
    prove(
        code == Some(Code::Aborted) && second.is_ok(),
        "it is refused while the first one is open, and admitted when that has ended",
    )?;
    drop(second);

    println!("\n4. Somebody else holds bob's account.");
    let other = locks.mutex(key!("account:{}", "bob")).acquire().await?;
    let refused = transfer(client.clone(), "ada", "bob", 1).await;
    other.release().await?;
    let code = refused.err().map(|status| {
        println!("   {:?}: {}", status.code(), status.message());
        status.code()
    });
    let later = transfer(client, "ada", "bob", 1).await;
    prove(
        code == Some(Code::Aborted) && later.is_ok_and(|left| left == 49),
        "the transfer is refused and moves nothing; later it can be repeated",
    )
}

/// Moves money and returns what is left in the account `from`.
async fn transfer(mut client: Client, from: &str, to: &str, amount: u64) -> Result<u64, Status> {
    let order = TransferRequest {
        from: from.to_owned(),
        to: to.to_owned(),
        amount,
    };
    Ok(client.transfer(order).await?.into_inner().left)
}

async fn watch(
    client: &Client,
    account: &str,
    watcher: &str,
) -> Result<Streaming<Balance>, Status> {
    let mut request = Request::new(WatchRequest {
        account: account.to_owned(),
    });
    let watcher = watcher
        .parse()
        .map_err(|_| Status::invalid_argument("watcher"))?;
    request.metadata_mut().insert("x-watcher", watcher);
    Ok(client.clone().watch(request).await?.into_inner())
}

async fn next(balances: &mut Streaming<Balance>) -> Result<u64, Failure> {
    let balance = balances.message().await?;
    Ok(balance.ok_or("the stream ended")?.amount)
}
