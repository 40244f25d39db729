//! Tests of MySQL and MariaDB by TLS: a server is verified or not connected to, and every refusal says what to do.

use std::path::Path;
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockManagerBuilder};
use tests::faults::{connected, renewed};
use tests::{MariadbServer, TlsFiles, answered};

const MS: Duration = Duration::from_millis(1);
/// That of a hold which outlives new handshakes on a busy machine.
const LEASE: Duration = Duration::from_secs(24);

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
fn url(server: &MariadbServer, place: &str, query: &str) -> String {
    format!("mysql://{place}:{}/locks?{query}", server.port())
}

/// Adds a user who may do everything, only by connections of that sort.
fn add_user(server: &MariadbServer, name: &str, by: &str) {
    server.query(&format!(
        "CREATE USER {name}@'%' REQUIRE {by}; GRANT ALL ON *.* TO {name}@'%'"
    ));
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
    let newest = MariadbServer::with_tls(&["tls-version=TLSv1.3"]);
    let older = MariadbServer::with_tls(&["tls-version=TLSv1.2"]);
    for server in [newest, older] {
        add_user(&server, "by_tls", "SSL");
        let mut held = Vec::new();
        for (place, query) in [
            ("by_tls@localhost", "sslmode=verify-full"),
            ("by_tls@127.0.0.1", "sslmode=require"),
            ("by_tls@localhost", "ssl-mode=VERIFY_IDENTITY"),
        ] {
            let trusting = trusting(server.tls_files());
            let locks = connected(trusting, &url(&server, place, query)).await;
            take_a_lock(&locks).await;
            let guard = locks.mutex(query).lease(18_000 * MS).acquire().await;
            held.push((locks, guard.unwrap()));
        }
        // Renewals and the look for forced releases have connections of their own.
        renewed(held.iter().map(|(_, guard)| guard)).await;
        for (locks, guard) in held {
            assert!(locks.force_release(guard.name()).await.unwrap());
            guard.lost().wait().await;
        }
        let plain = url(&server, "by_tls@localhost", "");
        let said = denied(tests::builder(), &plain).await;
        assert!(said.contains("`sslmode=verify-full`"), "{said}");
    }
}

#[tokio::test]
async fn an_unknown_authority_is_refused_in_every_mode() {
    let (server, stranger) = (MariadbServer::with_tls(&[]), tempfile::tempdir().unwrap());
    let stranger = TlsFiles::write_to(stranger.path());
    for mode in ["sslmode=require", "ssl-mode=VERIFY_IDENTITY"] {
        let said = denied(trusting(&stranger), &url(&server, "lock@localhost", mode)).await;
        assert!(said.contains("TLS"), "{said}");
        assert!(said.contains("`root_certificate`"), "{said}");
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_in_every_mode() {
    let server = MariadbServer::certified(&[], |certificate| {
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
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_refused() {
    let server = MariadbServer::certified(&[], |certificate| {
        certificate.not_before = rcgen::date_time_ymd(2001, 1, 1);
        certificate.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let url = url(&server, "lock@localhost", "sslmode=verify-full");
    let said = denied(trusting(server.tls_files()), &url).await;
    assert!(said.contains("expired"), "{said}");
    assert!(said.contains("renew the server's certificate"), "{said}");
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_is_shown_the_clients() {
    let newest = MariadbServer::with_tls(&["tls-version=TLSv1.3"]);
    let older = MariadbServer::with_tls(&["tls-version=TLSv1.2"]);
    for server in [newest, older] {
        add_user(&server, "certified", "X509");
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
    let server = MariadbServer::with_tls(&[]);
    add_user(&server, "certified", "X509");
    let files = server.tls_files();
    let url = url(&server, "certified@localhost", "sslmode=verify-full");
    let reading = tests::builder()
        .ensure_schema(true)
        .call_timeout(10_000 * MS)
        .root_certificate_file(&files.authority)
        .client_certificate_files(files.client_certificate(), files.client_key());
    let locks = connected(reading, &url).await;
    let guard = locks.mutex("held").lease(LEASE).acquire().await.unwrap();

    TlsFiles::write_to(files.authority.parent().expect("a directory"));
    server.query(match tests::mysql::is_meant() {
        true => "ALTER INSTANCE RELOAD TLS",
        false => "FLUSH SSL",
    });
    server.end_connections("certified");
    renewed([&guard]).await;
    take_a_lock(&locks).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_server_without_tls_is_refused_and_sent_nothing_in_plain() {
    let (server, files) = (MariadbServer::start(), tempfile::tempdir().unwrap());
    let files = TlsFiles::write_to(files.path());
    let url = url(&server, "lock@localhost", "sslmode=verify-full");
    match answered(async || trusting(&files).connect(&url).await).await {
        Err(LockError::InvalidConfig { why, .. }) => assert!(why.contains("has no TLS"), "{why}"),
        other => panic!("{other:?}"),
    }
    let made = "SHOW TABLES LIKE 'lock_leases'";
    assert_eq!(server.query(made), Vec::<String>::new());
}

#[tokio::test]
async fn a_tls_server_refuses_a_plain_connection_with_advice() {
    let server = MariadbServer::with_tls(&[]);
    server.query("SET GLOBAL require_secure_transport = 1");
    let plain = url(&server, "lock@127.0.0.1", "");
    let said = denied(tests::builder(), &plain).await;
    assert!(said.contains("`sslmode=verify-full`"), "{said}");
    let by_tls = url(&server, "lock@127.0.0.1", "sslmode=verify-full");
    let locks = connected(trusting(server.tls_files()), &by_tls).await;
    take_a_lock(&locks).await;
}

#[tokio::test]
async fn authorities_of_the_system_are_trusted_by_default() {
    let server = MariadbServer::with_tls(&[]);
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
        (tests::builder(), "ssl-mode=PREFERRED", "`verify-full`"),
        (tests::builder(), "sslmode=maybe", "`sslmode`"),
        (root(), "ssl-mode=VERIFY_CA", "`sslmode=verify-full`"),
        (root(), "ssl-ca=/ca.pem", "`root_certificate`"),
        (client(&files.key), "sslmode=require", "fit each other"),
        (
            tests::builder().root_certificate("hello"),
            "sslmode=require",
            "no certificate",
        ),
        (
            root(),
            "sslmode=require&socket=/s",
            "a unix socket has no TLS",
        ),
    ] {
        let url = format!("mysql://lock:hunter2@nowhere.invalid/db?{query}");
        match builder.connect(&url).await {
            Err(LockError::InvalidConfig { why, .. }) => {
                assert!(why.contains(names), "{query}: {why}");
                assert!(!why.contains("hunter2"), "{query}: {why}");
            }
            other => panic!("{query}: {other:?}"),
        }
    }
}
