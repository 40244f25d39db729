//! The customers: many at once, each clicking more than once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use indicatif::ProgressBar;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

type Http = Client<HttpConnector, Empty<Bytes>>;

/// The size of the storm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) users: u32,
    /// The number of purchases that each user asks for, at the same time.
    pub(crate) clicks: u32,
    /// The number of requests under way at once, each on its own keep-alive connection.
    pub(crate) connections: u32,
}

impl Size {
    pub(crate) fn requests(self) -> u64 {
        u64::from(self.users) * u64::from(self.clicks)
    }
}

/// The answers that the customers got.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) sold: u64,
    pub(crate) already_ordered: u64,
    pub(crate) sold_out: u64,
    /// The number of requests that were neither sold nor refused for a good reason.
    pub(crate) failed: u64,
    /// The reason why the first of those failed.
    pub(crate) failure: Option<String>,
    /// The time that each answer took, shortest first.
    pub(crate) waits: Vec<Duration>,
    pub(crate) elapsed: Duration,
}

/// Sends every request and collects the answers. A user's clicks leave one after the other without waiting, and go
/// to different servers.
pub(crate) async fn blow(
    size: Size,
    servers: &[String],
    coupon: &str,
    progress: &ProgressBar,
) -> Answers {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Http = Client::builder(TokioExecutor::new()).build(connector);
    let connections = Arc::new(Semaphore::new(size.connections as usize));
    let mut answers = Answers::default();
    let mut clicks = JoinSet::new();
    let started = Instant::now();

    let users = (0..size.users).flat_map(|user| (0..size.clicks).map(move |_| user));
    for (user, server) in users.zip(servers.iter().cycle()) {
        let connection = connections.clone().acquire_owned().await;
        let url = format!("{server}/coupons/{coupon}/orders/{user}");
        let client = client.clone();
        clicks.spawn(async move {
            let sent = Instant::now();
            let answer = click(&client, &url).await;
            drop(connection);
            (answer, sent.elapsed())
        });
        while let Some(Ok((answer, wait))) = clicks.try_join_next() {
            answers.add(answer, wait);
            progress.inc(1);
        }
    }
    while let Some(Ok((answer, wait))) = clicks.join_next().await {
        answers.add(answer, wait);
        progress.inc(1);
    }

    answers.elapsed = started.elapsed();
    answers.waits.sort_unstable();
    answers
}

/// Makes one purchase. Returns the status, or says in words what went wrong.
async fn click(client: &Http, url: &str) -> Result<StatusCode, String> {
    let request = Request::post(url)
        .body(Empty::new())
        .map_err(|error| error.to_string())?;
    let response = client.request(request).await.map_err(with_causes)?;
    let status = response.status();
    // The body is read to its end, or the connection could not be used again.
    let body = response.into_body().collect().await.map_err(with_causes)?;
    match status {
        StatusCode::CREATED | StatusCode::CONFLICT | StatusCode::GONE => Ok(status),
        _ => Err(format!(
            "{status}: {}",
            String::from_utf8_lossy(&body.to_bytes())
        )),
    }
}

fn with_causes(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

impl Answers {
    fn add(&mut self, answer: Result<StatusCode, String>, wait: Duration) {
        self.waits.push(wait);
        match answer {
            Ok(StatusCode::CREATED) => self.sold += 1,
            Ok(StatusCode::CONFLICT) => self.already_ordered += 1,
            Ok(_) => self.sold_out += 1,
            Err(why) => {
                self.failed += 1;
                self.failure.get_or_insert(why);
            }
        }
    }

    pub(crate) fn requests_per_second(&self) -> f64 {
        self.waits.len() as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }

    /// Returns the wait that `percent` of the requests did not exceed.
    pub(crate) fn wait_percentile(&self, percent: usize) -> Duration {
        let rank = (self.waits.len() * percent).div_ceil(100);
        let index = rank.saturating_sub(1);
        self.waits.get(index).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_wait_that_so_many_did_not_exceed() {
        let mut answers = Answers::default();
        assert_eq!(answers.wait_percentile(50), Duration::ZERO);
        answers.waits = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(answers.wait_percentile(50), Duration::from_millis(100));
        assert_eq!(answers.wait_percentile(99), Duration::from_millis(198));
        assert_eq!(answers.wait_percentile(100), Duration::from_millis(200));
    }
}
