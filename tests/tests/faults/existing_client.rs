//! Tests of connecting to the server of a `redis` client that the program has already.

use std::time::Duration;

use lock_runtime::{LockError, RedisServer as Known};
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};
use tests::{RedisServer, answered};

#[tokio::test]
async fn a_clients_address_database_and_login_are_taken_over() {
    let server = RedisServer::builder()
        .user("locks", "on >hunter2 ~* &* +@all")
        .start();
    let url = server.url_with("locks", "hunter2");
    let client = Client::open(format!("{url}3")).unwrap();
    let locks = tests::builder()
        .connect_redis(&client)
        .await
        .expect("the client's server");
    let guard = locks.mutex("k").acquire().await.unwrap();
    let (in_its_database, in_the_first): (i64, i64) = {
        let mut connection = client.get_connection().unwrap();
        let one = redis::cmd("EXISTS").arg("lock:k").query(&mut connection);
        (one.unwrap(), server.query(&["EXISTS", "lock:k"]))
    };
    assert_eq!((in_its_database, in_the_first), (1, 0));
    let list: String = server.query(&["CLIENT", "LIST", "TYPE", "PUBSUB"]);
    assert!(list.contains("user=locks"), "{list}");
    guard.release().await.unwrap();

    let info = client.get_connection_info();
    let shown = format!("{:?}", Known::from(info));
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn a_connection_info_by_a_unix_socket_connects() {
    let server = RedisServer::builder().unix_socket().start();
    let info: ConnectionInfo = server.unix_url().into_connection_info().unwrap();
    let locks = tests::builder().connect_redis(info).await.unwrap();
    let guard = locks.mutex("k").acquire().await.unwrap();
    assert!(server.exists("lock:k"));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn known_servers_are_nodes_of_a_quorum() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let clients = servers
        .each_ref()
        .map(|server| Client::open(server.url()).unwrap());
    let nodes = clients.each_ref().map(Known::from);
    // A node has a tenth of it to answer.
    let lease = Duration::from_secs(20);
    let builder = || tests::builder().lease(lease).longest_lease(lease);
    for server in &servers {
        tests::quorum::wait_until_older(server, lease).await;
    }
    let connecting = answered(async || builder().quorum(nodes.clone()).await);
    let locks = connecting.await.unwrap();
    let guard = locks.mutex("k").acquire().await.unwrap();
    assert!(
        servers
            .iter()
            .filter(|server| server.exists("lock:k"))
            .count()
            >= 2
    );
    guard.release().await.unwrap();

    let [one, two, _] = nodes;
    let twice = builder().quorum([one.clone(), two, one]).await;
    assert!(matches!(twice, Err(LockError::InvalidConfig { .. })));
}

#[tokio::test]
async fn certificates_of_an_existing_client_must_go_to_the_builder() {
    let server = RedisServer::builder().tls().start();
    let authority = std::fs::read(&server.tls_files().authority).expect("a PEM file");
    let certificates = TlsCertificates {
        client_tls: None,
        root_cert: Some(authority.clone()),
    };
    let client = Client::build_with_tls(server.tls_url(), certificates).unwrap();
    match tests::builder().connect_redis(&client).await {
        Err(LockError::InvalidConfig { why, .. }) => {
            assert!(why.contains("`root_certificate`"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    let builder = tests::builder().root_certificate(authority);
    let locks = builder.connect_redis(&client).await.unwrap();
    let guard = locks.mutex("k").acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_client_that_verifies_no_certificates_is_refused_without_io() {
    let careless = ConnectionAddr::TcpTls {
        host: "nowhere.invalid".to_owned(),
        port: 6379,
        insecure: true,
        tls_params: None,
    };
    let info = careless.into_connection_info().unwrap();
    match tests::builder().connect_redis(info).await {
        Err(LockError::InvalidConfig { why, .. }) => assert!(why.contains("verified"), "{why}"),
        other => panic!("{other:?}"),
    }
}
