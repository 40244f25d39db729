//! An order service: it holds a lock per order around its requests, and one per article inside.
//!
//! `cargo run --bin axum-orders`, or with `LOCK_URL=redis://127.0.0.1/` in front to keep the locks in Redis. It starts
//! the service on a free port of the loopback interface and sends it requests over HTTP.
//!
//! Read `service.rs` first: it is the part to start from. This file has the requests and the facts that they prove.

mod service;

use std::net::Ipv4Addr;
use std::process::ExitCode;

use axum::http::{Method, StatusCode, header};
use examples::{Answer, Client, Failure, prove};
use lock_runtime::{LockManager, key};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use service::Shop;

#[tokio::main]
async fn main() -> ExitCode {
    examples::run("axum-orders", serve_and_prove).await
}

async fn serve_and_prove(locks: &LockManager) -> Result<(), Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let customers = Client::of(listener.local_addr()?);
    let shop = Shop::new(locks.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, service::router(shop.clone()))
        .with_graceful_shutdown(async { drop(stopped.await) });
    let server = tokio::spawn(server.into_future());
    let outcome = tour(locks, &shop, &customers).await;
    drop(stop);
    server.await??;
    outcome
}

async fn tour(locks: &LockManager, shop: &Shop, customers: &Client) -> Result<(), Failure> {
    println!("\n1. Ten items are added to order 1 at the same time.");
    let answers = customers.post_all(vec!["/orders/1/items/pen"; 10]).await?;
    prove(
        count(&answers, StatusCode::OK) == 10 && shop.items(1) == 10 && shop.most_at_once() == 1,
        "10 of 10 items are in the order; its updates ran one at a time",
    )?;

    println!("\n2. Items are added to orders 11 to 20 at the same time.");
    let urls = (11..=20).map(|id| format!("/orders/{id}/items/pen"));
    let answers = customers.post_all(urls.collect()).await?;
    let most = shop.most_at_once();
    prove(
        count(&answers, StatusCode::OK) == 10 && most > 1,
        format!("updates of different orders ran at the same time, up to {most}"),
    )?;

    println!("\n3. Five orders want the last three lamps.");
    let urls = (21..=25).map(|id| format!("/orders/{id}/items/lamp"));
    let answers = customers.post_all(urls.collect()).await?;
    let sold = count(&answers, StatusCode::OK);
    let refused = count(&answers, StatusCode::CONFLICT);
    prove(
        (sold, refused, shop.stock("lamp")) == (3, 2, 0),
        "3 orders got a lamp, 2 were told 409, none is oversold",
    )?;

    println!("\n4. Somebody else holds order 7.");
    let other = locks.mutex(key!("order:{}", 7)).acquire().await?;
    let urls = vec!["/orders/7/cancel", "/orders/7/items/pen"];
    let answers = customers.post_all(urls).await?;
    for answer in &answers {
        println!("   {answer}");
    }
    other.release().await?;
    let retry = answers
        .iter()
        .all(|answer| answer.header(header::RETRY_AFTER).is_some());
    prove(
        retry
            && count(&answers, StatusCode::LOCKED) == 1
            && count(&answers, StatusCode::SERVICE_UNAVAILABLE) == 1
            && shop.items(7) == 0,
        "423 without waiting, 503 after it; neither ran",
    )?;
    let answers = customers.post_all(vec!["/orders/7/cancel"]).await?;
    prove(
        count(&answers, StatusCode::OK) == 1,
        "once it is free, the order can be cancelled",
    )?;

    println!("\n5. A customer clicks twice on `pay`: two requests, one Idempotency-Key.");
    // Stores are shared and may remember, so no two runs of this program use the same key.
    let click = format!("click-{}", fastrand::u64(..));
    let click = [("x-user", "ada"), ("idempotency-key", click.as_str())];
    let (first, second) = tokio::try_join!(
        customers.send(Method::POST, "/payments", &click, ""),
        customers.send(Method::POST, "/payments", &click, ""),
    )?;
    println!("   {first}\n   {second}");
    prove(
        first.status == StatusCode::CREATED && first.text == second.text && shop.payments() == 1,
        "two identical requests, one payment, the same answer",
    )?;
    let without = customers
        .send(Method::POST, "/payments", &[("x-user", "ada")], "")
        .await?;
    prove(
        without.status == StatusCode::BAD_REQUEST && shop.payments() == 1,
        "without a key it is 400",
    )?;

    println!("\n6. A load balancer asks whether the service is ready.");
    let answer = customers.send(Method::GET, "/ready", &[], "").await?;
    prove(
        answer.status == StatusCode::OK && answer.text == "ready",
        "it is ready: locks can be had",
    )
}

fn count(answers: &[Answer], status: StatusCode) -> usize {
    let matching = answers.iter().filter(|answer| answer.status == status);
    matching.count()
}
