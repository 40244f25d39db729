//! Tests of `rediss://` with an authority of one's own, and without.
//!
//! They connect in processes of their own, because an environment variable names the trusted authorities.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lock_runtime::LockManager;
use tests::faults::{connected, renewed, told, took};
use tests::{Pipe, PostgresServer, RedisCluster, RedisServer, SentinelGroup, TlsFiles, eventually};

/// The variable with the directory of the authority that this process trusts.
const TRUSTED: &str = "LOCK_TEST_TLS_FILES";

/// Runs `holder connect` and returns what it says.
async fn connect(url: &str, authority: &Path) -> String {
    run("connect", url, authority).await
}

/// Runs the holder with this command and returns what it says.
async fn run(command: &str, url: &str, authority: &Path) -> String {
    let mut holder = Command::new(env!("CARGO_BIN_EXE_holder"));
    holder
        .args([command, url])
        .env("SSL_CERT_FILE", authority)
        .env_remove("SSL_CERT_DIR");
    let output = tokio::task::spawn_blocking(move || holder.output());
    let output = output.await.expect("a thread").expect("run the holder");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).expect("text");
    said.trim().to_owned()
}

/// Returns a pipe to the server's TLS listener, which counts connections.
async fn counted(server: &RedisServer) -> Pipe {
    Pipe::start((Ipv4Addr::LOCALHOST, server.tls_port()).into()).await
}

#[tokio::test]
async fn a_certificate_of_a_trusted_private_authority_is_accepted() {
    let server = RedisServer::builder().tls().start();
    let said = connect(&server.tls_url(), &server.tls_files().authority).await;
    assert_eq!(said, "ok");
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_program_may_install_its_crypto_provider_after_a_connect() {
    let server = RedisServer::builder().tls().start();
    let database = PostgresServer::with_tls(&[], &[]);
    let authority = &server.tls_files().authority;
    let said = run("chooses-late", &server.tls_url(), authority).await;
    assert_eq!(said, "installed\nok");
    let said = run("chooses-late", "rediss://127.0.0.1:1/", authority).await;
    assert!(said.starts_with("installed\nerror"), "{said}");
    let url = format!(
        "postgres://lock@localhost:{}/postgres?sslmode=verify-full",
        database.port()
    );
    let creating = tests::builder().ensure_schema(true);
    drop(connected(creating, &database.url()).await);
    let said = run("chooses-late", &url, &database.tls_files().authority).await;
    assert_eq!(said, "installed\nok");
}

#[tokio::test]
async fn a_crypto_provider_installed_by_the_program_is_used() {
    let server = RedisServer::builder().tls().start();
    let authority = &server.tls_files().authority;
    let said = run("chooses-early", &server.tls_url(), authority).await;
    assert_eq!(said, "used\nok");
}

#[tokio::test]
async fn a_password_works_by_tls() {
    let server = RedisServer::builder().tls().requirepass("correct").start();
    let authority = &server.tls_files().authority;
    let url = server.tls_url();
    let said = connect(&url.replace("rediss://", "rediss://:correct@"), authority).await;
    assert_eq!(said, "ok");
    let said = connect(&url.replace("rediss://", "rediss://:secret@"), authority).await;
    assert!(
        said.starts_with("error Denied") && !said.contains("secret"),
        "{said}"
    );
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused_at_once() {
    let server = RedisServer::builder().tls().start();
    let stranger = RedisServer::builder().tls().start();
    let pipe = counted(&server).await;
    let url = format!("rediss://localhost:{}/", pipe.addr().port());
    let said = connect(&url, &stranger.tls_files().authority).await;
    assert!(said.starts_with("error Denied"), "{said}");
    assert!(
        said.contains("TLS") && said.contains("certificate"),
        "{said}"
    );
    assert_eq!(pipe.connections(), 1, "no retry");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let server = RedisServer::builder().tls().start();
    // The certificate says `localhost` and, as a name, `127.0.0.1`; this is neither.
    let url = server
        .tls_url()
        .replace("localhost", "localhost.localdomain");
    let said = connect(&url, &server.tls_files().authority).await;
    assert!(said.starts_with("error"), "{said}");
    assert!(!server.exists("lock:k"));
}

#[tokio::test]
async fn a_plain_port_behind_a_tls_url_is_an_error_and_no_hang() {
    let server = RedisServer::builder().tls().start();
    let url = format!("rediss://localhost:{}/", server.port());
    let (said, took) = took(connect(&url, &server.tls_files().authority)).await;
    assert!(said.starts_with("error"), "{said}");
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[tokio::test]
async fn sentinels_and_their_master_are_spoken_to_by_tls_and_verified() {
    let group = SentinelGroup::builder(0, 1).tls().start().await;
    let (master, url) = (&group.servers[0], group.tls_url());
    let said = connect(&url, &master.tls_files().authority).await;
    assert_eq!(said, "ok");
    let stranger = RedisServer::builder().tls().start();
    let said = connect(&url, &stranger.tls_files().authority).await;
    assert!(said.starts_with("error Denied"), "{said}");
    assert!(said.contains("certificate"), "{said}");
    assert!(master.stray_keys().is_empty());
}

#[tokio::test]
async fn plain_sentinels_of_a_tls_server_are_used_as_the_url_says() {
    let group = SentinelGroup::builder(0, 1).tls().start().await;
    let authority = &group.servers[0].tls_files().authority;
    let plain = group.url();
    let mixed = plain.replace("redis-sentinel", "rediss-sentinel");
    let said = connect(&format!("{mixed}?sentinel_tls=off"), authority).await;
    assert_eq!(said, "ok");
    let said = connect(&mixed, authority).await;
    assert!(said.starts_with("error"), "{said}");
    assert!(said.contains("`?sentinel_tls=off`"), "{said}");
    let said = connect(&plain, authority).await;
    assert!(said.starts_with("error"), "{said}");
    assert!(
        said.contains("`rediss-sentinel://`, with `?sentinel_tls=off`"),
        "{said}"
    );
}

#[tokio::test]
async fn tls_sentinels_of_a_plain_server_are_used_as_the_url_says() {
    let group = SentinelGroup::builder(0, 1).plain_master().start().await;
    let authority = &group.servers[0].tls_files().authority;
    let by_tls = group.tls_url();
    let mixed = by_tls.replace("rediss-sentinel", "redis-sentinel");
    let said = connect(&format!("{mixed}?sentinel_tls=on"), authority).await;
    assert_eq!(said, "ok");
    let said = connect(&mixed, authority).await;
    assert!(said.starts_with("error"), "{said}");
    assert!(said.contains("`?sentinel_tls=on`"), "{said}");
    let said = connect(&by_tls, authority).await;
    assert!(said.starts_with("error"), "{said}");
    assert!(
        said.contains("`redis-sentinel://`, with `?sentinel_tls=on`"),
        "{said}"
    );
}

#[tokio::test]
async fn a_refused_node_certificate_names_what_to_announce_instead() {
    let dir = tempfile::Builder::new()
        .prefix("lock-test")
        .tempdir()
        .expect("a directory");
    let files = TlsFiles::write_with(dir.path(), |certificate| {
        let name = "localhost".try_into().expect("a name");
        certificate.subject_alt_names = vec![rcgen::SanType::DnsName(name)];
    });
    let cluster = RedisCluster::builder().tls(files.clone()).start().await;
    let mut said = String::new();
    // On a busy machine, there may be no answer in time.
    eventually("the nodes are refused", async || {
        said = connect(&cluster.tls_url(), &files.authority).await;
        !said.starts_with("error Unavailable")
    })
    .await;
    assert!(said.starts_with("error Denied"), "{said}");
    assert!(said.contains("`cluster-announce-hostname`"), "{said}");
}

/// Runs the test once more, in a process that trusts a new authority. Returns `None` in the first process, when that
/// run is over.
fn in_a_process_with_trust(test: &str) -> Option<TlsFiles> {
    if let Some(dir) = std::env::var_os(TRUSTED) {
        return Some(TlsFiles::of(dir.as_ref()));
    }
    let dir = tempfile::Builder::new()
        .prefix("lock-test")
        .tempdir()
        .expect("a directory");
    let files = TlsFiles::write_to(dir.path());
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args([&format!("tls::{test}"), "--exact", "--nocapture"])
        .env(TRUSTED, dir.path())
        .env("SSL_CERT_FILE", &files.authority)
        .env_remove("SSL_CERT_DIR")
        .output()
        .expect("run this program");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaint}");
    assert!(said.contains("1 passed"), "{said}");
    None
}

#[tokio::test]
async fn locks_of_a_cluster_live_by_tls_and_move_with_their_slots() {
    let test = "locks_of_a_cluster_live_by_tls_and_move_with_their_slots";
    let Some(files) = in_a_process_with_trust(test) else {
        return;
    };
    let cluster = RedisCluster::builder().tls(files).start().await;
    let url = cluster.tls_url();
    let (locks, other) = (connected(told(), &url).await, connected(told(), &url).await);
    let (mut contended, mut short) = (Vec::new(), Vec::new());
    for node in 0..3 {
        let key = cluster.key_at(node, "lock:k");
        let lock = |locks: &LockManager| locks.mutex(&key["lock:".len()..]);
        let first = lock(&locks).acquire().await.unwrap();
        assert!(cluster.nodes[node].exists(&key));
        let next = tokio::spawn(lock(&locks).acquire());
        eventually("it waits", async || {
            let info = locks.inspect(first.name()).await.unwrap();
            info.local_waiters == 1
        })
        .await;
        first.release().await.unwrap();
        // This lock was handed over within the process.
        let guard = next.await.unwrap().unwrap();
        let waiting = tokio::spawn(lock(&other).acquire());
        // It is in the same slot.
        let request = locks.mutex(format!("{{{key}}}short"));
        let request = request.lease(Duration::from_secs(18));
        short.push(request.acquire().await.unwrap());
        contended.push((key, guard, waiting));
    }
    let (key, ..) = &contended[0];
    cluster.move_slot(cluster.slot_of(key), 1).await;
    renewed(&short).await;
    for (key, guard, waiting) in contended {
        assert!(guard.is_held() && !waiting.is_finished(), "{key}");
        let channels = || -> Vec<String> {
            let owner = cluster.owner_of_key(&key);
            cluster.query(owner, &["PUBSUB", "SHARDCHANNELS"])
        };
        eventually("it is listened to", async || {
            channels().iter().any(|channel| channel.contains(&key))
        })
        .await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    // Nobody has connected to the plain ports.
    for node in &cluster.nodes {
        let clients: String = node.query(&["CLIENT", "LIST", "TYPE", "NORMAL"]);
        let plain = format!("laddr=127.0.0.1:{} ", node.port());
        let strangers = clients.lines().filter(|line| line.contains(&plain));
        let strangers: Vec<_> = strangers
            .filter(|line| !line.contains("test-support"))
            .collect();
        assert!(strangers.is_empty(), "{strangers:?}");
    }
}

#[tokio::test]
async fn nodes_of_a_cluster_are_verified() {
    let dir = tempfile::Builder::new()
        .prefix("lock-test")
        .tempdir()
        .expect("a directory");
    let files = TlsFiles::write_to(dir.path());
    let cluster = RedisCluster::builder().tls(files.clone()).start().await;
    let said = connect(&cluster.tls_url(), &files.authority).await;
    assert_eq!(said, "ok");
    let stranger = RedisServer::builder().tls().start();
    let mut pipes = Vec::new();
    for node in &cluster.nodes {
        pipes.push(counted(node).await);
    }
    let hosts = pipes.iter().map(|pipe| pipe.addr().port());
    let hosts: Vec<_> = hosts.map(|port| format!("localhost:{port}")).collect();
    let url = format!("rediss-cluster://{}", hosts.join(","));
    let said = connect(&url, &stranger.tls_files().authority).await;
    assert!(said.starts_with("error Denied"), "{said}");
    assert!(
        said.contains("TLS") && said.contains("certificate"),
        "{said}"
    );
    let connections: usize = pipes.iter().map(Pipe::connections).sum();
    assert!(connections <= 3, "no retry: {connections}");
}
