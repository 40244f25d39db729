//! The support library's own servers do what the fault tests rely on.

use std::time::Duration;

use redis::{AsyncCommands, Client};
use tests::server::patient;
use tests::{CommandStats, Data, RedisServer, eventually};

#[tokio::test]
async fn a_server_answers_and_ends_with_its_value() {
    let server = RedisServer::start();
    assert_eq!(server.query::<String>(&["PING"]), "PONG");
    let mut connection = patient(&server.url()).await;
    let () = connection.set("k", 1).await.unwrap();
    assert_eq!(server.keys(), ["k"]);
    assert_eq!(server.clients().len(), 1);
    drop(server);
    assert!(connection.get::<_, i64>("k").await.is_err());
}

#[test]
fn a_server_ends_when_the_test_panics() {
    let (tell, told) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let server = RedisServer::start();
        tell.send((server.port(), server.url())).unwrap();
        panic!("as planned");
    });
    let (port, _) = told.recv().unwrap();
    assert!(panicked.join().is_err());
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn a_restart_keeps_the_port_and_keeps_or_loses_the_data() {
    let mut server = RedisServer::start();
    let port = server.port();
    let _ = server.command(&["SET", "k", "v"]).unwrap();
    server.restart(Data::Kept);
    assert_eq!((server.port(), server.exists("k")), (port, true));
    server.restart(Data::Lost);
    assert_eq!((server.port(), server.exists("k")), (port, false));
}

#[test]
fn an_append_only_server_keeps_its_data_through_a_kill() {
    let mut server = RedisServer::builder().appendonly().start();
    let _ = server.command(&["SET", "k", "v"]).unwrap();
    server.kill9();
    server.restart(Data::Kept);
    assert!(server.exists("k"));
}

#[tokio::test]
async fn a_frozen_server_accepts_and_does_not_answer() {
    let server = RedisServer::start();
    let mut connection = patient(&server.url()).await;
    server.sigstop();
    let ping = tokio::time::timeout(Duration::from_millis(100), connection.ping::<String>()).await;
    assert!(!matches!(ping, Ok(Ok(_))));
    server.sigcont();
    eventually("the server answers again", async || {
        connection.ping::<String>().await.is_ok()
    })
    .await;
}

#[test]
fn users_and_passwords_are_those_of_the_settings() {
    let server = RedisServer::builder()
        .requirepass("admin")
        .user("app", "on >secret ~lock:* +get")
        .maxmemory("64mb", "noeviction")
        .start();
    let get = |url: String| {
        let mut connection = Client::open(url).unwrap().get_connection()?;
        redis::cmd("GET")
            .arg("lock:a")
            .query::<Option<String>>(&mut connection)
    };
    assert_eq!(get(server.url()), Ok(None));
    assert_eq!(get(server.url_with("app", "secret")), Ok(None));
    assert!(get(server.url_with("app", "wrong")).is_err());
}

#[tokio::test]
async fn a_unix_socket_and_tls_listen_where_the_urls_say() {
    let server = RedisServer::builder().unix_socket().tls().start();
    let mut connection = patient(&server.unix_url()).await;
    assert_eq!(connection.ping::<String>().await.unwrap(), "PONG");
    assert!(server.tls_url().starts_with("rediss://localhost:"));
    assert!(server.tls_files().authority.exists());
}

#[test]
fn command_counters_see_what_others_send() {
    let server = RedisServer::start();
    let before = CommandStats::of(&server);
    let _ = server
        .command(&["EVAL", "return redis.call('PING')", "0"])
        .unwrap();
    let diff = CommandStats::of(&server).since(&before);
    assert_eq!(
        (diff.scripts(), diff.calls("ping"), diff.calls("get")),
        (1, 1, 0)
    );
}

#[tokio::test]
async fn leftovers_are_seen() {
    let server = RedisServer::start();
    server.assert_deserted().await;
    let _ = server.command(&["SET", "lock:fence:{abc}", "1"]).unwrap();
    let _ = server.command(&["SET", "lock:a", "1"]).unwrap();
    assert_eq!(server.stray_keys(), ["lock:a"]);
    let client = Client::open(server.url()).unwrap();
    let mut pubsub = client.get_async_pubsub().await.unwrap();
    pubsub.subscribe("c").await.unwrap();
    assert_eq!(
        (server.channels(), server.clients().len()),
        (vec!["c".to_owned()], 1)
    );
    drop(pubsub);
    server.flushall();
    server.assert_deserted().await;
}
