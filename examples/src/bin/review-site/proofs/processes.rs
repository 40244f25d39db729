//! The whole site: several processes behind one port, one of which is asked to end under load.

use std::collections::HashMap;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::{Method, StatusCode};
use examples::{Client, Failure, prove};
use redis::AsyncCommands;
use tokio::task::JoinSet;

use super::until;
use crate::housekeeper;
use crate::processes::{Fleet, Process};
use crate::sale;
use crate::sale_fenced::SALE;
use crate::sign_in::{SESSION, session};
use crate::site::{Home, STOCK, Site};

const USERS: usize = 60;
const CLICKS: usize = 10;

pub(super) async fn prove_all(home: &Home, processes: usize) -> Result<(), Failure> {
    let site = Site::open(&home.store, &home.database).await?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = Client::of(listener.local_addr()?);
    let fleet = Fleet::start(processes, listener, home).await?;
    println!("\n6. {processes} processes behind one port (processes.rs).");
    let outcome = over_http(&site, &client, fleet).await;
    site.locks.shutdown().await;
    outcome
}

async fn over_http(site: &Site, client: &Client, mut fleet: Fleet) -> Result<(), Failure> {
    let ready = client.send(Method::GET, "/ready", &[], "").await?;
    let metrics = client.send(Method::GET, "/metrics", &[], "").await?;
    prove(
        ready.status == StatusCode::OK && metrics.text.contains(r#"lock="site:sale:stream:open""#),
        "the site is ready, and has metrics by the locks' templates",
    )?;

    let mut cookies = vec![];
    for user in 0..USERS {
        let phone = format!("+49160{user:06}");
        let code = site.sign_in.new_code(&phone).await?;
        let token = site.sign_in.sign_in(&phone, &code).await?;
        cookies.push(format!("session={token}"));
    }
    let key = session(cookies[0].trim_start_matches("session="));
    let mut redis = site.redis.clone();
    for path in ["/", "/shops/1", "/feed/new", "/locks", "/no-such-page"] {
        let () = redis.expire(&key, 60).await?;
        client
            .send(Method::GET, path, &[("cookie", &cookies[0])], "")
            .await?;
        let left: u64 = redis.ttl(&key).await?;
        if left <= SESSION / 2 {
            return Err(format!("{path} has not extended the session").into());
        }
    }
    prove(true, "a request for whichever path extends the session")?;

    let stock = STOCK / 2;
    let again = move |it: &rusqlite::Transaction<'_>| {
        it.execute("DELETE FROM orders WHERE sale = ?1", [SALE])?;
        it.execute("UPDATE sales SET stock = ?2 WHERE name = ?1", (SALE, stock))
    };
    site.database.transaction(again).await?;
    // The one that keeps house ends when a third of the requests is answered.
    let answered = Arc::new(AtomicUsize::new(0));
    let mut users = JoinSet::new();
    for (number, cookie) in cookies.into_iter().enumerate() {
        let (client, answered) = (client.clone(), answered.clone());
        users.spawn(async move {
            let cookie = [("cookie", cookie.as_str())];
            let mut told: HashMap<StatusCode, usize> = HashMap::new();
            for click in 0..CLICKS {
                let shop = format!("/shops/{}", 1 + (number + click) % 20);
                let order = format!("/sales/{SALE}/orders");
                for (method, path) in [(Method::GET, shop), (Method::POST, order)] {
                    let answer = client.send(method, &path, &cookie, "").await?;
                    *told.entry(answer.status).or_default() += 1;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok::<_, Failure>(told)
        });
    }
    let requests = USERS * CLICKS * 2;
    until("a third is answered", async || {
        Ok(answered.load(Ordering::Relaxed) >= requests / 3)
    })
    .await?;
    let leader = housekeeper(site).await?;
    let is_leader = |process: &Process| leader.contains(&process.locks);
    let ending = fleet.processes.iter().position(is_leader);
    let ending = fleet
        .processes
        .remove(ending.ok_or("no process keeps house")?);
    ending.terminate()?;
    let under_way = requests - answered.load(Ordering::Relaxed);
    let (pid, locks) = (ending.pid, ending.locks.clone());
    ending.ended().await?;
    let next = housekeeper(site).await?;

    let mut told: HashMap<StatusCode, usize> = HashMap::new();
    while let Some(user) = users.join_next().await {
        for (status, many) in user?? {
            *told.entry(status).or_default() += many;
        }
    }
    let (served, sold) = (
        told.remove(&StatusCode::OK),
        told.remove(&StatusCode::CREATED),
    );
    told.remove(&StatusCode::CONFLICT);
    told.remove(&StatusCode::GONE);
    let left = site.database.call(|it| sale::stock(it, SALE)).await?;
    prove(
        told.is_empty()
            && under_way > 0
            && served == Some(requests / 2)
            && sold == Some(stock as usize)
            && left == 0,
        format!(
            "one process was asked to end with {under_way} of {requests} requests to come: none failed, {stock} of {stock} sold"
        ),
    )?;
    prove(
        !next.contains(&locks),
        format!(
            "process {pid} gave its locks back: another one keeps house, and did not wait for the end of a lease"
        ),
    )?;
    fleet.stop().await
}

/// Returns the holder of the housekeeper's lock. Waits if nobody has it.
async fn housekeeper(site: &Site) -> Result<String, Failure> {
    let mut leader = None;
    until("a process keeps house", async || {
        let seen = site.locks.inspect(housekeeper::LOCK).await?;
        leader = seen.holder.map(|holder| holder.to_string());
        Ok(leader.is_some())
    })
    .await?;
    Ok(leader.unwrap_or_default())
}
