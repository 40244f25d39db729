//! `rediss://` with an authority of one's own, and without.
//!
//! In processes of their own: the trusted authorities are an environment variable.

use std::process::Command;
use std::time::{Duration, Instant};

use tests::{RedisServer, SentinelGroup};

/// What `holder connect` says, and how long it took.
fn connect(url: &str, authority: &std::path::Path) -> (String, Duration) {
    let started = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_holder"))
        .args(["connect", url])
        .env("SSL_CERT_FILE", authority)
        .env_remove("SSL_CERT_DIR")
        .output()
        .expect("run the holder");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).expect("text");
    (said.trim().to_owned(), started.elapsed())
}

#[tokio::test]
async fn a_certificate_of_a_trusted_private_authority_is_accepted() {
    let server = RedisServer::builder().tls().start();
    let (said, _) = connect(&server.tls_url(), &server.tls_files().authority);
    assert_eq!(said, "ok");
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_password_works_by_tls() {
    let server = RedisServer::builder().tls().requirepass("correct").start();
    let authority = &server.tls_files().authority;
    let url = server.tls_url();
    let (said, _) = connect(&url.replace("rediss://", "rediss://:correct@"), authority);
    assert_eq!(said, "ok");
    let (said, _) = connect(&url.replace("rediss://", "rediss://:secret@"), authority);
    assert!(
        said.starts_with("error Denied") && !said.contains("secret"),
        "{said}"
    );
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused_at_once() {
    let server = RedisServer::builder().tls().start();
    let stranger = RedisServer::builder().tls().start();
    let (said, took) = connect(&server.tls_url(), &stranger.tls_files().authority);
    assert!(said.starts_with("error Denied"), "{said}");
    assert!(
        said.contains("TLS") && said.contains("certificate"),
        "{said}"
    );
    assert!(took < Duration::from_secs(3), "no retry: {took:?}");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let server = RedisServer::builder().tls().start();
    // The certificate says `localhost` and, as a name, `127.0.0.1`; this is neither.
    let url = server
        .tls_url()
        .replace("localhost", "localhost.localdomain");
    let (said, _) = connect(&url, &server.tls_files().authority);
    assert!(said.starts_with("error"), "{said}");
    assert!(!server.exists("lock:k"));
}

#[tokio::test]
async fn a_plain_port_behind_a_tls_url_is_an_error_and_no_hang() {
    let server = RedisServer::builder().tls().start();
    let url = format!("rediss://localhost:{}/", server.port());
    let (said, took) = connect(&url, &server.tls_files().authority);
    assert!(said.starts_with("error"), "{said}");
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[tokio::test]
async fn sentinels_and_their_master_are_spoken_to_by_tls_and_verified() {
    let group = SentinelGroup::builder(0, 1).tls().start().await;
    let (master, url) = (&group.servers[0], group.tls_url());
    let (said, _) = connect(&url, &master.tls_files().authority);
    assert_eq!(said, "ok");
    let stranger = RedisServer::builder().tls().start();
    let (said, _) = connect(&url, &stranger.tls_files().authority);
    assert!(said.starts_with("error Denied"), "{said}");
    assert!(said.contains("certificate"), "{said}");
    assert!(master.stray_keys().is_empty());
}
