//! Tests of PostgreSQL by TLS: a server is verified or not connected to, and every refusal says what to do.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockManagerBuilder};
use tests::faults::{connected, renewed, use_once};
use tests::{PostgresServer, TlsFiles, answered, eventually};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

const MS: Duration = Duration::from_millis(1);
/// That of a hold which outlives new handshakes on a busy machine.
const LEASE: Duration = Duration::from_secs(24);
/// The first bytes of a client that wants TLS: the length of the message, and its code.
const ASKS_FOR_TLS: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a PEM file")
}

fn trusting(files: &TlsFiles) -> LockManagerBuilder {
    tests::builder()
        .ensure_schema(true)
        .call_timeout(10_000 * MS)
        .root_certificate(read(&files.authority))
}

/// Returns a URL of the server with this `place`, which is `user@host`, and with this query.
fn url(server: &PostgresServer, place: &str, query: &str) -> String {
    format!("postgres://{place}:{}/postgres?{query}", server.port())
}

async fn take_a_lock(locks: &LockManager) {
    let guard = locks.mutex("k").acquire().await.expect("the lock");
    guard.release().await.expect("released");
}

/// Returns the error with which a builder is refused for good.
async fn denied(builder: LockManagerBuilder, url: &str) -> String {
    match answered(async || builder.clone().connect(url).await).await {
        Err(error @ LockError::Denied { .. }) => {
            assert!(!error.is_retryable());
            error.to_string()
        }
        other => panic!("{url}: {other:?}"),
    }
}

#[tokio::test]
async fn every_connection_uses_tls_to_a_host_named_in_the_certificate() {
    let newest = PostgresServer::with_tls(&[], &[]);
    let older = PostgresServer::with_tls(&["ssl_max_protocol_version=TLSv1.2"], &[]);
    for (server, version) in [(newest, "TLSv1.3"), (older, "TLSv1.2")] {
        for (place, mode) in [
            ("lock@localhost", "verify-full"),
            ("lock@127.0.0.1", "require"),
            ("lock@localhost", "verify-ca"),
        ] {
            let query = format!("sslmode={mode}&application_name=by-tls");
            let url = url(&server, place, &query);
            let locks = connected(trusting(server.tls_files()), &url).await;
            take_a_lock(&locks).await;
            let guard = locks.mutex("k").acquire().await.unwrap();
            let waiter = tokio::spawn(locks.mutex("k").wait(60_000 * MS).acquire());
            let spoken = "SELECT DISTINCT coalesce(version, 'none') FROM pg_stat_ssl \
                          JOIN pg_stat_activity USING (pid) WHERE application_name = 'by-tls'";
            assert_eq!(server.query(spoken), [version], "{mode}");
            guard.release().await.unwrap();
            waiter.await.unwrap().unwrap().release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_login_is_tied_to_the_certificate_of_the_server() {
    let rules = ["hostssl all tied 127.0.0.1/32 scram-sha-256"];
    let server = PostgresServer::with_tls(&[], &rules);
    server.query("CREATE ROLE tied LOGIN SUPERUSER PASSWORD 'hunter2'");
    let query = "sslmode=verify-full&channel_binding=require";
    let right = url(&server, "tied:hunter2@localhost", query);
    let locks = connected(trusting(server.tls_files()), &right).await;
    take_a_lock(&locks).await;
    let wrong = url(&server, "tied:hunter3@localhost", query);
    let said = denied(trusting(server.tls_files()), &wrong).await;
    assert!(said.contains("tied") && !said.contains("hunter3"), "{said}");
}

#[tokio::test]
async fn an_unknown_authority_is_refused_in_every_mode() {
    let (server, stranger) = (
        PostgresServer::with_tls(&[], &[]),
        PostgresServer::with_tls(&[], &[]),
    );
    for mode in ["require", "verify-ca", "verify-full"] {
        let url = url(&server, "lock@localhost", &format!("sslmode={mode}"));
        let said = denied(trusting(stranger.tls_files()), &url).await;
        assert!(said.contains("TLS"), "{said}");
        assert!(said.contains("`root_certificate`"), "{said}");
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_unless_verify_ca() {
    let server = PostgresServer::certified(&[], &[], |certificate| {
        let name = "elsewhere.example".try_into().expect("a name");
        certificate.subject_alt_names = vec![rcgen::SanType::DnsName(name)];
    });
    for (place, mode) in [
        ("lock@localhost", "verify-full"),
        ("lock@127.0.0.1", "require"),
    ] {
        let url = url(&server, place, &format!("sslmode={mode}"));
        let said = denied(trusting(server.tls_files()), &url).await;
        assert!(said.contains("elsewhere.example"), "{said}");
        assert!(said.contains("subject alternative name"), "{said}");
    }
    let url = url(&server, "lock@localhost", "sslmode=verify-ca");
    let locks = connected(trusting(server.tls_files()), &url).await;
    take_a_lock(&locks).await;
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_refused_in_every_mode() {
    let server = PostgresServer::certified(&[], &[], |certificate| {
        certificate.not_before = rcgen::date_time_ymd(2001, 1, 1);
        certificate.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    for mode in ["verify-ca", "verify-full"] {
        let url = url(&server, "lock@localhost", &format!("sslmode={mode}"));
        let said = denied(trusting(server.tls_files()), &url).await;
        assert!(said.contains("expired"), "{said}");
        assert!(said.contains("renew the server's certificate"), "{said}");
    }
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_is_shown_the_clients() {
    let rules = ["hostssl all certified 127.0.0.1/32 trust clientcert=verify-ca"];
    let newest = PostgresServer::with_tls(&[], &rules);
    let older = PostgresServer::with_tls(&["ssl_max_protocol_version=TLSv1.2"], &rules);
    for server in [newest, older] {
        server.query("CREATE ROLE certified LOGIN SUPERUSER");
        let url = url(&server, "certified@localhost", "sslmode=verify-full");
        let showing = |files: &TlsFiles| {
            let (chain, key) = (read(&files.client_certificate()), read(&files.client_key()));
            trusting(server.tls_files()).client_certificate(chain, key)
        };
        let locks = connected(showing(server.tls_files()), &url).await;
        take_a_lock(&locks).await;
        let said = denied(trusting(server.tls_files()), &url).await;
        assert!(said.contains("`client_certificate`"), "{said}");
        let dir = tempfile::tempdir().expect("a directory");
        let stranger = TlsFiles::write_to(dir.path());
        let said = denied(showing(&stranger), &url).await;
        assert!(said.contains("`client_certificate`"), "{said}");
    }
}

#[tokio::test]
async fn the_next_connection_reads_certificates_replaced_on_disk() {
    let rules = ["hostssl all certified 127.0.0.1/32 trust clientcert=verify-ca"];
    let server = PostgresServer::with_tls(&[], &rules);
    server.query("CREATE ROLE certified LOGIN SUPERUSER");
    let files = server.tls_files();
    let by_files = || {
        tests::builder()
            .ensure_schema(true)
            .call_timeout(10_000 * MS)
            .root_certificate_file(&files.authority)
            .client_certificate_files(files.client_certificate(), files.client_key())
    };
    let url = url(&server, "certified@localhost", "sslmode=verify-full");
    let locks = connected(by_files(), &url).await;
    let guard = locks.mutex("held").lease(LEASE).acquire().await.unwrap();

    TlsFiles::write_to(files.authority.parent().expect("a directory"));
    server.query("SELECT pg_reload_conf()");
    eventually("the server shows the new certificate", async || {
        by_files().connect(&url).await.is_ok()
    })
    .await;
    server.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'certified'",
    );
    renewed([&guard]).await;
    take_a_lock(&locks).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_server_without_tls_is_refused_and_sent_nothing_in_plain() {
    let (server, files) = (PostgresServer::start(), tempfile::tempdir().unwrap());
    let files = TlsFiles::write_to(files.path());
    let url = url(&server, "lock@localhost", "sslmode=verify-full");
    match answered(async || trusting(&files).connect(&url).await).await {
        Err(LockError::InvalidConfig { why, .. }) => assert!(why.contains("has no TLS"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(server.query("SELECT to_regclass('lock_leases')"), [""]);
}

#[tokio::test]
async fn a_tls_server_refuses_a_plain_connection_with_advice() {
    let rules = ["hostssl all all all trust", "host all all all reject"];
    let server = PostgresServer::with_tls(&[], &rules);
    let plain = url(&server, "lock@localhost", "");
    let said = denied(tests::builder(), &plain).await;
    assert!(said.contains("`sslmode=verify-full`"), "{said}");
}

#[tokio::test]
async fn authorities_of_the_system_are_trusted_by_default() {
    let server = PostgresServer::with_tls(&[], &[]);
    let url = url(&server, "lock@localhost", "sslmode=verify-full");
    drop(connected(trusting(server.tls_files()), &url).await);
    let dir = tempfile::tempdir().expect("a directory");
    let stranger = TlsFiles::write_to(dir.path());
    let nothing = dir.path().join("nothing.pem");
    for (authority, expected) in [
        (&server.tls_files().authority, "ok"),
        (&stranger.authority, "error Denied"),
        (&nothing, "error InvalidConfig"),
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_holder"))
            .args(["connect", &url])
            .env("SSL_CERT_FILE", authority)
            .env_remove("SSL_CERT_DIR")
            .output()
            .expect("run the holder");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.starts_with(expected), "{authority:?}: {said}");
    }
}

/// Starts a proxy that notes the bytes with which each connection begins.
async fn listening_in(to: std::net::SocketAddr) -> (u16, Arc<Mutex<Vec<[u8; 8]>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let beginnings = Arc::new(Mutex::new(Vec::new()));
    let notes = beginnings.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let notes = notes.clone();
            tokio::spawn(async move {
                let mut beginning = [0; 8];
                client.read_exact(&mut beginning).await?;
                notes.lock().unwrap().push(beginning);
                let mut server = TcpStream::connect(to).await?;
                tokio::io::AsyncWriteExt::write_all(&mut server, &beginning).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    (port, beginnings)
}

#[tokio::test]
async fn an_abandoned_statement_is_cancelled_over_tls_as_well() {
    let server = PostgresServer::with_tls(&[], &[]);
    let (port, beginnings) = listening_in(server.addr()).await;
    let url = format!(
        "postgres://lock@localhost:{port}/postgres?sslmode=verify-full&application_name=through"
    );
    let builder = trusting(server.tls_files()).call_timeout(2_000 * MS);
    let locks = connected(builder, &url).await;
    use_once(locks.mutex("k")).await;
    let mut psql = tests::postgres::program("psql");
    let plain = server.url();
    let mut session = tests::Worker::spawn(psql.args(["-X", "-q", "-A", "-t", "-d", &plain]));
    session.tell("BEGIN;");
    session.tell("SELECT 'locked' FROM lock_leases WHERE name = 'lock:k' FOR UPDATE;");
    session.expect_line("locked");
    let before = beginnings.lock().unwrap().len();
    let refused = locks.write("k").try_acquire().await;
    assert!(
        matches!(refused, Err(LockError::Unavailable { .. })),
        "{refused:?}"
    );
    eventually("no statement waits for the row", async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity \
                       WHERE application_name = 'through' AND wait_event_type = 'Lock'";
        server
            .log()
            .contains("canceling statement due to user request")
            && beginnings.lock().unwrap().len() > before
            && server.query(waiting) == ["0"]
    })
    .await;
    session.tell("COMMIT; SELECT 'done';");
    session.expect_line("done");
    let beginnings = beginnings.lock().unwrap().clone();
    assert!(
        beginnings
            .iter()
            .all(|beginning| *beginning == ASKS_FOR_TLS),
        "{beginnings:?}"
    );
}

#[tokio::test]
async fn what_makes_no_sense_about_tls_is_refused_before_any_io() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = TlsFiles::write_to(dir.path());
    let root = || tests::builder().root_certificate(read(&files.authority));
    let client = |key: &Path| {
        let chain = read(&files.client_certificate());
        tests::builder().client_certificate(chain, read(key))
    };
    for (builder, query, names) in [
        (root(), "", "without TLS"),
        (root(), "sslmode=disable", "without TLS"),
        (client(&files.client_key()), "", "without TLS"),
        (tests::builder(), "sslmode=prefer", "`sslmode=prefer`"),
        (tests::builder(), "sslmode=allow", "`verify-full`"),
        (tests::builder(), "sslmode=maybe", "`sslmode`"),
        (tests::builder(), "sslmode=verify-ca", "`root_certificate`"),
        (root(), "sslrootcert=/ca.pem", "`root_certificate`"),
        (tests::builder(), "sslnegotiation=direct", "need TLS"),
        (tests::builder(), "channel_binding=require", "need TLS"),
        (client(&files.key), "sslmode=require", "fit each other"),
        (
            tests::builder().root_certificate("hello"),
            "sslmode=require",
            "no certificate",
        ),
    ] {
        let url = format!("postgres://lock:hunter2@nowhere.invalid/db?{query}");
        match builder.connect(&url).await {
            Err(LockError::InvalidConfig { why, .. }) => {
                assert!(why.contains(names), "{query}: {why}");
                assert!(!why.contains("hunter2"), "{query}: {why}");
            }
            other => panic!("{query}: {other:?}"),
        }
    }
    let socket = "postgres://lock@%2Frun%2Fpostgresql/db?sslmode=require";
    let refused = root().connect(socket).await.unwrap_err().to_string();
    assert!(refused.contains("a unix socket has no TLS"), "{refused}");
}
