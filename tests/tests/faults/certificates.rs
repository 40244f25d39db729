//! Tests of certificates that a builder is given: those that a client shows, and those that it trusts.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockManagerBuilder};
use tests::faults::renewed;
use tests::{RedisCluster, RedisServer, SentinelGroup, TlsFiles, builder};

/// That of a hold which outlives new handshakes on a busy machine.
const LEASE: Duration = Duration::from_secs(30);

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a PEM file")
}

fn trusting(files: &TlsFiles) -> LockManagerBuilder {
    builder().root_certificate(read(&files.authority))
}

fn certified(files: &TlsFiles) -> LockManagerBuilder {
    trusting(files).client_certificate(read(&files.client_certificate()), read(&files.client_key()))
}

async fn take_a_lock(locks: &LockManager) {
    let guard = locks.mutex("k").acquire().await.expect("the lock");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_is_shown_the_clients() {
    let server = RedisServer::builder()
        .tls()
        .line("tls-auth-clients yes")
        .start();
    let files = server.tls_files();
    let locks = certified(files).connect(&server.tls_url()).await.unwrap();
    take_a_lock(&locks).await;
    drop(locks);
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_client_without_a_wanted_certificate_is_refused_for_good() {
    let server = RedisServer::builder()
        .tls()
        .line("tls-auth-clients yes")
        .start();
    let refused = trusting(server.tls_files())
        .connect(&server.tls_url())
        .await;
    let error = refused.unwrap_err();
    assert!(matches!(error, LockError::Denied { .. }), "{error:?}");
    assert!(!error.is_retryable());
    let said = error.to_string().to_lowercase();
    assert!(
        said.contains("tls") && said.contains("certificate"),
        "{said}"
    );
}

#[tokio::test]
async fn a_client_certificate_of_an_unknown_authority_is_denied() {
    let server = RedisServer::builder()
        .tls()
        .line("tls-auth-clients yes")
        .start();
    let stranger = RedisServer::builder().tls().start();
    let (files, other) = (server.tls_files(), stranger.tls_files());
    let builder = trusting(files)
        .client_certificate(read(&other.client_certificate()), read(&other.client_key()));
    let error = builder.connect(&server.tls_url()).await.unwrap_err();
    assert!(matches!(error, LockError::Denied { .. }), "{error:?}");
}

#[tokio::test]
async fn only_the_authorities_that_the_builder_names_are_trusted() {
    let server = RedisServer::builder().tls().start();
    let locks = trusting(server.tls_files())
        .connect(&server.tls_url())
        .await;
    take_a_lock(&locks.unwrap()).await;
    let stranger = RedisServer::builder().tls().start();
    let refused = trusting(stranger.tls_files())
        .connect(&server.tls_url())
        .await;
    let error = refused.unwrap_err();
    assert!(matches!(error, LockError::Denied { .. }), "{error:?}");
}

#[tokio::test]
async fn sentinels_and_their_master_are_shown_the_certificate() {
    let group = SentinelGroup::builder(0, 1)
        .client_certificates()
        .start()
        .await;
    let files = group.servers[0].tls_files();
    let locks = certified(files).connect(&group.tls_url()).await.unwrap();
    take_a_lock(&locks).await;
    let refused = trusting(files).connect(&group.tls_url()).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, LockError::Denied { .. }), "{error:?}");
}

#[tokio::test]
async fn nodes_of_a_cluster_are_shown_the_certificate() {
    let dir = tempfile::Builder::new()
        .prefix("lock-test")
        .tempdir()
        .expect("a directory");
    let files = TlsFiles::write_to(dir.path());
    let cluster = RedisCluster::builder().tls(files.clone()).start().await;
    for node in &cluster.nodes {
        let _: redis::Value = node.query(&["CONFIG", "SET", "tls-auth-clients", "yes"]);
    }
    let locks = certified(&files).connect(&cluster.tls_url()).await.unwrap();
    for node in 0..3 {
        let key = cluster.key_at(node, "lock:k");
        let guard = locks.mutex(&key["lock:".len()..]).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    let refused = trusting(&files).connect(&cluster.tls_url()).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, LockError::Denied { .. }), "{error:?}");
}

#[tokio::test]
async fn the_next_connection_reads_certificates_replaced_on_disk() {
    the_next_connection_shows_new_ones(|builder, files| {
        builder
            .root_certificate_file(&files.authority)
            .client_certificate_files(files.client_certificate(), files.client_key())
    })
    .await;
}

#[tokio::test]
async fn a_function_is_asked_for_the_certificates_of_each_connection() {
    // Like an agent that keeps them in memory. It fails once, and panics once.
    the_next_connection_shows_new_ones(|builder, files| {
        let calls = AtomicUsize::new(0);
        let (authority, files) = (files.authority.clone(), files.clone());
        builder
            .root_certificate_from(move || std::fs::read(&authority))
            .client_certificate_from(move || match calls.fetch_add(1, SeqCst) {
                4 => Err("the agent is away"),
                5 => panic!("the agent panics"),
                _ => Ok((read(&files.client_certificate()), read(&files.client_key()))),
            })
    })
    .await;
}

async fn the_next_connection_shows_new_ones(
    of: impl FnOnce(LockManagerBuilder, &TlsFiles) -> LockManagerBuilder,
) {
    let server = RedisServer::builder()
        .tls()
        .line("tls-auth-clients yes")
        .start();
    let files = server.tls_files();
    let locks = of(builder(), files).connect(&server.tls_url()).await;
    let locks = locks.unwrap();
    let guard = locks.mutex("held").lease(LEASE).acquire().await.unwrap();

    let dir = tempfile::tempdir().expect("a directory");
    let new = TlsFiles::write_to(dir.path());
    let path = |file: &Path| file.to_str().expect("a path").to_owned();
    let _: redis::Value = server.query(&[
        "CONFIG",
        "SET",
        "tls-ca-cert-file",
        &path(&new.authority),
        "tls-cert-file",
        &path(&new.certificate),
        "tls-key-file",
        &path(&new.key),
    ]);
    for (new, old) in [
        (new.authority.clone(), files.authority.clone()),
        (new.client_certificate(), files.client_certificate()),
        (new.client_key(), files.client_key()),
    ] {
        std::fs::copy(new, old).expect("replace a file");
    }
    server.cut_clients();
    renewed([&guard]).await;
    take_a_lock(&locks).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn certificates_that_are_of_no_use_are_refused_before_any_io() {
    let server = RedisServer::builder().tls().start();
    let files = server.tls_files();
    let (chain, key) = (read(&files.client_certificate()), read(&files.client_key()));
    let another_key = read(&files.key);
    let builder = LockManager::builder;
    for (what, builder, url) in [
        (
            "fit each other",
            builder().client_certificate(&chain, &another_key),
            "rediss://nowhere.invalid/",
        ),
        (
            "no certificate",
            builder().client_certificate(&key, &key),
            "rediss://nowhere.invalid/",
        ),
        (
            "not a private key",
            builder().client_certificate(&chain, &chain),
            "rediss://nowhere.invalid/",
        ),
        (
            "no certificate",
            builder().root_certificate("hello"),
            "rediss-sentinel://nowhere.invalid/service",
        ),
        (
            "without TLS",
            builder().root_certificate(&chain),
            "redis://nowhere.invalid/",
        ),
        (
            "without TLS",
            builder().client_certificate(&chain, &key),
            "redis-cluster://nowhere.invalid",
        ),
        (
            "/nowhere/ca.pem cannot be read",
            builder().root_certificate_file("/nowhere/ca.pem"),
            "rediss://nowhere.invalid/",
        ),
        (
            "/nowhere/key cannot be read",
            builder().client_certificate_files(files.client_certificate(), "/nowhere/key"),
            "postgres://nowhere.invalid/?sslmode=verify-full",
        ),
        (
            "`client_certificate_from` failed: the agent is away",
            builder().client_certificate_from(|| Err("the agent is away")),
            "mysql://nowhere.invalid/?sslmode=verify-full",
        ),
        (
            "`root_certificate_from` panicked",
            builder()
                .root_certificate_from(|| -> Result<_, String> { panic!("a fault of the test") }),
            "rediss://nowhere.invalid/",
        ),
        (
            "memory store",
            builder().root_certificate(&chain),
            "memory://",
        ),
    ] {
        match builder.connect(url).await {
            Err(LockError::InvalidConfig { why, .. }) => assert!(why.contains(what), "{why}"),
            other => panic!("{what}: {other:?}"),
        }
    }
}
