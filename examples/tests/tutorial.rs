//! The service of the tutorial: each of its nine routes, and its shutdown.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use lock_runtime::TryAcquire;
use rustix::process::{Pid, Signal, kill_process};
use tests::{RedisServer, answered, eventually_within};

/// The longest wait for an event. Only a test that fails spends it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program and a client of it.
struct Service {
    child: Child,
    url: String,
    client: Client<HttpConnector, Full<axum::body::Bytes>>,
}

impl Service {
    fn start(locks: &str) -> Service {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tutorial"))
            .env("LOCK_URL", locks)
            .env("ADDRESS", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("run the tutorial");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("a first line");
        let url = line.trim().strip_prefix("listening on ");
        Service {
            url: url.expect("an address").to_owned(),
            child,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    async fn send(&self, method: &str, path: &str, json: &str) -> (StatusCode, String) {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .body(Full::from(json.to_owned()))
            .expect("a request");
        let response = self.client.request(request).await.expect("a response");
        let status = response.status();
        let body = response.collect().await.expect("a body").to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    async fn status(&self, method: &str, path: &str, json: &str) -> u16 {
        self.send(method, path, json).await.0.as_u16()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn each_route_answers_and_refuses_what_another_process_holds() {
    let server = RedisServer::start();
    let service = Service::start(&server.url());
    let other = tests::connected(&server.url()).await;

    assert_eq!(service.status("GET", "/ready", "").await, 200);
    for (items, text) in [(1, "order 7 has 1 items"), (2, "order 7 has 2 items")] {
        let (status, body) = service.send("POST", "/orders/7/items", "").await;
        assert_eq!((status.as_u16(), body.as_str()), (200, text), "{items}");
    }
    let payment = r#"{"order":7,"cents":100}"#;
    assert_eq!(service.status("POST", "/payments", payment).await, 201);
    assert_eq!(service.status("POST", "/payments", payment).await, 200);
    let (status, report) = service.send("POST", "/reports/daily", "").await;
    assert_eq!((status.as_u16(), report.as_str()), (200, "2 items"));
    let prices = r#"{"lamp":900}"#;
    assert_eq!(service.status("PUT", "/prices", prices).await, 204);
    assert_eq!(service.send("GET", "/prices", "").await.1, prices);
    // An export waits for 100 ms at most, and the first one needs several round trips in that time.
    eventually_within(PATIENCE, "the orders are exported", async || {
        service.send("POST", "/exports", "").await == (StatusCode::OK, "7,2\n".to_owned())
    })
    .await;
    assert_eq!(service.status("PUT", "/meters/gas", "1000").await, 204);

    // Another process holds all of it.
    let order = other.mutex("order:7").acquire().await.expect("order");
    let report = other.mutex("report:daily").acquire().await.expect("report");
    let prices = other.read("prices").acquire().await.expect("prices");
    let exports = other.semaphore("exports").in_all(2).permits(2);
    let exports = exports.acquire().await.expect("exports");
    assert_eq!(service.status("POST", "/orders/7/items", "").await, 503);
    assert_eq!(service.status("POST", "/orders/8/items", "").await, 200);
    assert_eq!(service.status("POST", "/reports/daily", "").await, 423);
    assert_eq!(service.status("GET", "/prices", "").await, 200);
    assert_eq!(service.status("PUT", "/prices", "{}").await, 503);
    assert_eq!(service.status("POST", "/exports", "").await, 503);

    let (_, page) = service.send("GET", "/locks", "").await;
    assert!(page.contains(&other.id()), "who builds the report: {page}");
    assert!(page.contains(r#""name":"reminders""#), "who leads: {page}");
    let (_, metrics) = service.send("GET", "/metrics", "").await;
    for series in [
        r#"lock_acquire_total{lock="order",kind="mutex",store="redis",outcome="acquired"} 3"#,
        r#"lock_wait_seconds_bucket{lock="payment:{payment.order}","#,
        r#"lock_held{lock="reminders",kind="mutex",store="redis"} 1"#,
    ] {
        assert!(metrics.contains(series), "no {series} in\n{metrics}");
    }
    for guard in [order, report, prices, exports] {
        guard.release().await.expect("release");
    }
    assert_eq!(service.status("POST", "/reports/daily", "").await, 200);
}

#[tokio::test]
async fn a_service_without_its_store_is_not_ready_and_refuses() {
    let server = RedisServer::start();
    let service = Service::start(&server.url());
    drop(server);
    eventually_within(PATIENCE, "the service is not ready", async || {
        service.status("GET", "/ready", "").await == 503
    })
    .await;
    assert_eq!(service.status("POST", "/orders/7/items", "").await, 503);
}

#[tokio::test]
async fn sigterm_ends_the_service_at_once_and_leaves_no_lock() {
    let server = RedisServer::start();
    let mut service = Service::start(&server.url());
    eventually_within(PATIENCE, "the service leads", async || {
        server.exists("lock:reminders")
    })
    .await;
    kill_process(Pid::from_child(&service.child), Signal::TERM).expect("signal it");
    let ended = service.child.wait().expect("wait for it");
    assert!(ended.success(), "{ended}");
    let left = server.keys();
    let left: Vec<_> = left
        .iter()
        .filter(|key| !key.starts_with("lock:fence:"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let next = tests::connected(&server.url()).await;
    let free = answered(async || next.mutex("reminders").try_acquire().await).await;
    let free = free.expect("an answer");
    assert!(matches!(free, TryAcquire::Acquired(_)), "nobody leads");
}
