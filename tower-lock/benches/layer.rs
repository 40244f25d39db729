//! The time that the layer adds to a call, compared with `LockRequest::run` written by hand around the same service.
//!
//! The calls run on the memory store, uncontended, with a request per iteration and 256 keys. The two are run in turn,
//! in short rounds; the figure is the median of the rounds' differences, with its quartiles. The program exits with 1
//! if the layer adds 3 µs or more in an optimised build.
#![allow(missing_docs)]

use std::convert::Infallible;
use std::hint::black_box;
use std::time::{Duration, Instant};

use http::{Request, Response};
use lock_runtime::{LockManager, LockName};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_lock::LockLayer;

const ROUNDS: usize = 101;
const CALLS: u32 = 2_000;
const MOST: Duration = Duration::from_micros(3);

type Answer = Result<Response<String>, Infallible>;

fn key(request: &Request<String>) -> Option<LockName> {
    let order = request.uri().path().strip_prefix("/orders/")?;
    Some(LockName::from("order:").with(order))
}

async fn handle(request: Request<String>) -> Answer {
    Ok(Response::new(request.into_body()))
}

/// Returns the nanoseconds of one call, on average.
async fn time<S>(service: &mut S, requests: &[Request<String>]) -> f64
where
    S: Service<Request<String>, Response = Response<String>, Error = Infallible>,
{
    let since = Instant::now();
    for number in 0..CALLS as usize {
        let request = requests[number % requests.len()].clone();
        let Ok(service) = service.ready().await;
        let _ = black_box(service.call(request).await);
    }
    since.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let locks = LockManager::in_memory();
    let requests: Vec<_> = (0..256)
        .map(|order| Request::get(format!("/orders/{order}")))
        .map(|request| request.body(String::new()).unwrap())
        .collect();

    let mut bare = service_fn(handle);
    let by_hand = locks.clone();
    let mut by_hand = service_fn(move |request: Request<String>| {
        let locks = by_hand.clone();
        async move {
            let Some(name) = key(&request) else {
                return handle(request).await;
            };
            let wait = Duration::from_secs(1);
            let outcome = locks
                .mutex(name)
                .wait(wait)
                .run(async |_| handle(request).await);
            outcome.await.unwrap_or_else(|_| Ok(Response::default()))
        }
    });
    let layer = LockLayer::new(locks, key).wait(Duration::from_secs(1));
    let mut layered = layer.clone().layer(service_fn(handle));
    let mut unlocked = LockLayer::new(
        LockManager::in_memory(),
        |_: &Request<String>| None::<String>,
    )
    .layer(service_fn(handle));

    let (mut hand, mut with_layer, mut added, mut none) = (vec![], vec![], vec![], vec![]);
    for round in 0..=ROUNDS {
        let plain = time(&mut bare, &requests).await;
        let passed = time(&mut unlocked, &requests).await;
        // The second of the two finds warmer caches, so the order alternates.
        let (one, other) = if round % 2 == 0 {
            let one = time(&mut by_hand, &requests).await;
            (one, time(&mut layered, &requests).await)
        } else {
            let other = time(&mut layered, &requests).await;
            (time(&mut by_hand, &requests).await, other)
        };
        if round > 0 {
            hand.push(one);
            with_layer.push(other);
            added.push(other - one);
            none.push(passed - plain);
        }
    }
    println!("ns per call, quartiles of {ROUNDS} rounds of {CALLS} calls");
    for (what, values) in [
        ("run, by hand", &hand),
        ("layer", &with_layer),
        ("layer adds to run", &added),
        ("layer adds without a key", &none),
    ] {
        let [low, median, high] = quartiles(values.clone());
        println!("{what:<26}{low:>9.0}{median:>9.0}{high:>9.0}");
    }
    let too_much = quartiles(added)[1] >= MOST.as_nanos() as f64;
    std::process::ExitCode::from(u8::from(too_much && !cfg!(debug_assertions)))
}
