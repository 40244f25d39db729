//! The review site: what it proves, its page's routes over several processes, and what a killed process leaves.

mod served;

use std::path::PathBuf;
use std::process::{Command, Output};

use axum::http::{Method, StatusCode};
use examples::Client;
use lock_runtime::LockManager;
use rusqlite::Connection;
use rustix::process::Signal;
use tests::{RedisServer, eventually_within};
use tokio::task::JoinSet;

use served::{PATIENCE, Site, program, signal};

/// Returns whether nobody listens on the site's port any more.
async fn is_away(site: &Site) -> bool {
    let ready = site.client.send(Method::GET, "/ready", &[], "").await;
    ready.is_err()
}

fn database(site: &Site) -> Connection {
    let folders = site.directory.path().read_dir().expect("read it").flatten();
    let mut files = folders.map(|folder| folder.path().join("site.sqlite"));
    let file: Option<PathBuf> = files.find(|path| path.exists());
    Connection::open(file.expect("the database")).expect("open it")
}

/// Returns what the site left on the server, but for what locks leave for a while.
fn left_on(server: &RedisServer) -> Vec<String> {
    let mut left = server.keys();
    left.retain(|key| !key.starts_with("lock:fence:") && !key.starts_with("lock:waiting:"));
    left
}

#[test]
fn the_site_proves_every_piece_and_leaves_nothing_on_redis() {
    let server = RedisServer::start();
    let output = program(&server.url()).output().expect("run it");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    for fact in [
        "30 sign-ins with one code, in three processes at once: one session",
        "every process knows the session, and its life of half an hour begins anew with each request",
        "after five wrong guesses, the right code is refused, too",
        "200 readers of a page that is not cached: 1 query; the others waited for it",
        "200 readers of an old page: 1 query, in the background; ",
        "1000 pages that are cached together get old over 1",
        "the filter finds 1000 of 1000 ids; of 1000 that do not exist, ",
        "200 readers of one that passes the filter: 1 query, for that there is none is cached, too",
        "a reader that was slow caches the old page after the first deletion; the second one waits for it",
        "a reader that has lost its lock comes after both; its token is refused",
        "; after a write, 0 old pages",
        "24 tasks draw 250 ids each: 6000 different ones, each task's in the order of time",
        "after Redis has lost its data, the next id is larger than all of them",
        "locked: 100 orders of 100 users, 0 pieces left; 3000 clicks, ",
        "fenced: 100 orders of 100 users, 0 pieces left; 3000 clicks, ",
        "a click that was paused comes after buy and cancel of the same user: the fence refuses it",
        "Redis has decided: 100 orders are on the stream, none is in the database",
        "stream: 100 orders of 100 users, 0 pieces left; 3000 clicks, ",
        "after Redis has lost its data, stock and buyers come back from the database",
        "101 clicks of one user at once: liked; 101 more: not liked",
        "the first five of six who liked, in their order",
        "two users follow four each; one in common, after one was left",
        "a feed of 100, 30 of them of the same ms, in pages of 7 while 30 new ones come: each once",
        "of 200 shops are within 5 km: 10 pages of 10, the nearest first, none twice",
        "67 days in a row, over the ends of three months, and a leap day; after a day without, 1",
        "10000 views by 5000 visitors: ",
        "the site is ready, and has metrics by the locks' templates",
        "a request for whichever path extends the session",
        "requests to come: none failed, 50 of 50 sold",
        "another one keeps house, and did not wait for the end of a lease",
    ] {
        let proved = |line: &str| line.contains("proved: ") && line.contains(fact);
        assert!(text.lines().any(proved), "no `{fact}` in\n{text}");
    }
    assert_eq!(errors, "");
    assert_eq!(left_on(&server), Vec::<String>::new());
}

#[tokio::test]
async fn a_session_is_good_in_every_process_until_the_sign_out() {
    let server = RedisServer::start();
    let mut site = Site::serve(&server.url(), 3);
    let phone = r#"{"phone":"+491511234567"}"#;
    assert_eq!(
        site.send(Method::POST, "/code", "", phone).await.status,
        StatusCode::OK
    );
    let again = site.send(Method::POST, "/code", "", phone).await;
    assert_eq!(again.status, StatusCode::TOO_MANY_REQUESTS);
    let line = site.parent.line().expect("the code");
    let code = line.strip_prefix("the code for +491511234567 is ");
    let code = code.unwrap_or_else(|| panic!("no code in `{line}`"));
    let sign_in = |code: &str| format!(r#"{{"phone":"+491511234567","code":"{code}"}}"#);
    let wrong = site
        .send(Method::POST, "/session", "", &sign_in("12"))
        .await;
    assert_eq!(wrong.status, StatusCode::FORBIDDEN);
    let right = site
        .send(Method::POST, "/session", "", &sign_in(code))
        .await;
    assert_eq!(right.status, StatusCode::CREATED);
    let cookie = right
        .header(axum::http::header::SET_COOKIE)
        .expect("a cookie");
    let session = cookie
        .trim_start_matches("session=")
        .split(';')
        .next()
        .expect("a token");

    let user = site.send(Method::GET, "/me", session, "").await.text;
    for _ in 0..30 {
        let me = site.send(Method::GET, "/me", session, "").await;
        assert_eq!((me.status, &me.text), (StatusCode::OK, &user));
    }
    let own = site.send(Method::GET, "/me", "made-up", "").await;
    assert_eq!(own.status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        site.send(Method::DELETE, "/session", session, "")
            .await
            .status,
        204
    );
    assert_eq!(site.send(Method::GET, "/me", session, "").await.status, 401);

    signal(site.parent.pid(), Signal::TERM);
    eventually_within(PATIENCE, "the site ends", async || site.parent.has_ended()).await;
    assert_eq!(left_on(&server), Vec::<String>::new());
}

#[tokio::test]
async fn a_review_reaches_followers_and_is_liked_once() {
    let server = RedisServer::start();
    let site = Site::serve(&server.url(), 2);
    for user in ["1", "2"] {
        server.query::<String>(&["SET", &format!("site:session:of-{user}"), user]);
    }
    assert_eq!(
        site.send(Method::PUT, "/follows/2", "of-1", "")
            .await
            .status,
        204
    );
    let review = r#"{"text":"good coffee"}"#;
    let written = site
        .send(Method::POST, "/shops/7/reviews", "of-2", review)
        .await;
    assert_eq!(written.status, StatusCode::CREATED);
    let feed = site.send(Method::GET, "/feed/new", "of-1", "").await.text;
    assert!(
        feed.contains("good coffee") && feed.contains(&written.text),
        "{feed}"
    );
    let like = format!("/reviews/{}/like", written.text);
    for expected in [
        r#"{"liked":true,"likes":1}"#,
        r#"{"liked":false,"likes":0}"#,
    ] {
        assert_eq!(
            site.send(Method::POST, &like, "of-1", "").await.text,
            expected
        );
    }

    let shop = site.send(Method::GET, "/shops/7", "of-1", "").await.text;
    assert!(shop.contains("Shop 7"), "{shop}");
    let name = r#"{"name":"Seventh Heaven"}"#;
    assert_eq!(
        site.send(Method::PUT, "/shops/7", "", name).await.status,
        401
    );
    assert_eq!(
        site.send(Method::PUT, "/shops/7", "of-1", name)
            .await
            .status,
        204
    );
    eventually_within(PATIENCE, "the new name is shown", async || {
        let shop = site.send(Method::GET, "/shops/7", "of-1", "").await;
        shop.text.contains("Seventh Heaven")
    })
    .await;
    for (path, status) in [
        ("/shops/7000", 404),
        ("/feed/nonsense", 400),
        ("/nearby/0/99/0", 400),
        ("/reviews/1", 404),
        ("/", 200),
    ] {
        assert_eq!(
            site.send(Method::GET, path, "of-1", "").await.status,
            status,
            "{path}"
        );
    }
    assert_eq!(
        site.send(Method::POST, "/sales/none/orders", "of-1", "")
            .await
            .status,
        404
    );
}

/// Buys as a user, and asks again if the process was killed meanwhile.
async fn click(client: &Client, user: usize) -> StatusCode {
    let cookie = format!("session=of-{user}");
    let headers = [("cookie", cookie.as_str())];
    loop {
        let order = client.send(Method::POST, "/sales/stream/orders", &headers, "");
        if let Ok(answer) = order.await {
            return answer.status;
        }
    }
}

#[tokio::test]
async fn no_order_is_lost_or_doubled_when_a_writer_is_killed() {
    const USERS: usize = 150;
    let server = RedisServer::start();
    let site = Site::serve(&server.url(), 3);
    for user in 1..=USERS {
        let key = format!("site:session:of-{user}");
        server.query::<String>(&["SET", &key, &user.to_string()]);
    }
    // The first user's lock is taken, so the writer that gets the order stands still with it.
    let locks = LockManager::connect(&server.url()).await.expect("connect");
    let lock = locks.mutex("site:sale:stream:user:1").acquire().await;
    let lock = lock.expect("the lock");
    assert_eq!(click(&site.client, 1).await, StatusCode::ACCEPTED);
    let pending = ["XPENDING", "site:{sale}:orders", "writers", "-", "+", "1"];
    let mut writer = String::new();
    eventually_within(PATIENCE, "a writer has the order", async || {
        type Pending = Vec<(String, String, u64, u64)>;
        let taken: Pending = server.query(&pending);
        writer = taken
            .first()
            .map_or(String::new(), |(_, writer, ..)| writer.clone());
        !writer.is_empty()
    })
    .await;

    // The others buy meanwhile, each twice at the same time; the writer is killed in the middle of it.
    let mut clicks = JoinSet::new();
    for user in (2..=USERS).chain(2..=USERS) {
        let client = site.client.clone();
        clicks.spawn(async move { click(&client, user).await });
    }
    let mut told = vec![];
    while let Some(status) = clicks.join_next().await {
        told.push(status.expect("a status"));
        if told.len() == 60 {
            let killed = site.processes.iter().find(|(_, locks)| *locks == writer);
            let (pid, _) = killed.unwrap_or_else(|| panic!("no process is {writer}"));
            signal(*pid, Signal::KILL);
        }
    }
    lock.release().await.expect("release");
    let expected = [StatusCode::ACCEPTED, StatusCode::CONFLICT, StatusCode::GONE];
    assert!(
        told.iter().all(|status| expected.contains(status)),
        "{told:?}"
    );

    eventually_within(PATIENCE, "every order is written", async || {
        let sales = site.send(Method::GET, "/sales", "", "").await.text;
        sales.contains(r#""stock":0,"unwritten":0"#)
    })
    .await;
    let database = database(&site);
    let totals =
        "SELECT count(*), count(DISTINCT user), (SELECT stock FROM sales WHERE name = 'stream'),
        count(*) FILTER (WHERE user = 1) FROM orders WHERE sale = 'stream'";
    let totals = database.query_row(totals, [], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    });
    let totals: (u32, u32, u32, u32) = totals.expect("the totals");
    assert_eq!(totals, (100, 100, 0, 1));
    // The answers of the killed process were lost, but not the orders.
    let accepted = told
        .iter()
        .filter(|status| **status == StatusCode::ACCEPTED);
    assert!(accepted.count() <= 99);
    let buyers: u32 = server.query(&["SCARD", "site:{sale}:buyers"]);
    assert_eq!(buyers, 100);
}

#[tokio::test]
async fn processes_and_their_redis_end_with_a_killed_parent() {
    let mut site = Site::serve("", 2);
    assert!(!is_away(&site).await);
    let client = redis::Client::open(site.store.as_str()).expect("a URL");
    client.get_connection().expect("a server of its own");
    site.parent.kill9();
    eventually_within(PATIENCE, "every process ends", async || {
        is_away(&site).await
    })
    .await;
    eventually_within(PATIENCE, "the server ends", async || {
        client.get_connection().is_err()
    })
    .await;
}

#[tokio::test]
async fn a_trace_has_the_request_and_its_lock_by_their_templates() {
    let server = RedisServer::start();
    let log = tempfile::NamedTempFile::new().expect("a file");
    let mut command = program(&server.url());
    command
        .env("TRACE", "1")
        .stderr(log.reopen().expect("open it"));
    let site = Site::start(command, 1);
    server.query::<String>(&["SET", "site:session:of-1", "1"]);
    let bought = site
        .send(Method::POST, "/sales/locked/orders", "of-1", "")
        .await;
    assert_eq!(bought.status, StatusCode::CREATED);
    eventually_within(PATIENCE, "the trace is there", async || {
        let log = std::fs::read_to_string(log.path()).expect("read it");
        log.lines().any(|line| {
            line.contains(r#"request{method=POST route="/sales/{way}/orders"}"#)
                && line.contains("lock.hold{")
                && line.contains("site:sale:locked:user:{user}")
                && line.contains("close")
        })
    })
    .await;
}

fn refused(mut command: Command, why: &str) {
    let output: Output = command.output().expect("run it");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains(why), "no `{why}` in {errors}");
}

#[test]
fn what_cannot_start_is_one_line_and_exit_code_2() {
    let with = |url: &str, options: &[&str]| {
        let mut command = program(url);
        command.args(options);
        command
    };
    refused(
        with("redis://127.0.0.1:1/", &[]),
        "LOCK_URL=redis://127.0.0.1:1/",
    );
    refused(
        with("redsi://127.0.0.1/", &[]),
        "LOCK_URL=redsi://127.0.0.1/",
    );
    refused(with("redis-cluster://127.0.0.1/", &[]), "one Redis server");
    refused(with("memory://shared", &[]), "one Redis server");
    refused(with("", &["--processes", "0"]), "from 1 to 64");
    refused(with("", &["--port", "80"]), "--serve");
    let mut none = with("", &[]);
    none.env("REDIS_SERVER_BIN", "/no/such/redis-server");
    refused(none, "apt-get install redis-server");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port().to_string();
    refused(
        with("", &["--serve", "--port", &port]),
        &format!("port {port}"),
    );
    let server = RedisServer::start();
    server.query::<String>(&["SET", "site:shop:1", "null"]);
    refused(with(&server.url(), &[]), "`site:shop:1`");
    // Nothing else was written, and nothing was removed.
    assert_eq!(left_on(&server), ["site:shop:1"]);
}

#[test]
fn help_goes_to_stdout() {
    let output = program("").arg("--help").output().expect("run it");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("--processes N"));
}
