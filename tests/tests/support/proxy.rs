//! The fault proxy does what the fault tests rely on.

use std::time::{Duration, Instant};

use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{AsyncCommands, AsyncConnectionConfig, Client, RedisResult};
use tests::{Direction, FaultProxy, RedisServer, Then, eventually};

const SHORT: Duration = Duration::from_millis(150);

/// Connects, and waits for each answer for as long as it takes.
async fn connect(proxy: &FaultProxy) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    Client::open(proxy.url())?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// Connects, to subscribe to channels.
async fn listen(proxy: &FaultProxy) -> (PubSubSink, PubSubStream) {
    let client = Client::open(proxy.url()).unwrap();
    client.get_async_pubsub().await.unwrap().split()
}

/// Sends `PING`, and returns whether there is no answer.
async fn is_deaf(connection: &mut MultiplexedConnection) -> bool {
    let ping = tokio::time::timeout(SHORT, connection.ping::<String>());
    ping.await.is_err()
}

/// Sets a key to 1. There is no answer.
async fn set_in_vain(connection: &mut MultiplexedConnection, key: &str) {
    let set = tokio::time::timeout(SHORT, connection.set::<_, _, ()>(key, 1));
    assert!(set.await.is_err());
}

async fn start() -> (RedisServer, FaultProxy, MultiplexedConnection) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    let connection = connect(&proxy).await.unwrap();
    (server, proxy, connection)
}

#[tokio::test]
async fn it_forwards_and_counts() {
    let (server, proxy, mut connection) = start().await;
    let () = connection.set("k", "v".repeat(100_000)).await.unwrap();
    assert_eq!(
        connection.get::<_, String>("k").await.unwrap().len(),
        100_000
    );
    assert_eq!(
        (proxy.count("set"), proxy.count("GET"), proxy.connections()),
        (1, 1, 1)
    );
    drop(connection);
    eventually("the connection is closed on both sides", async || {
        proxy.open_connections() == 0 && server.clients().is_empty()
    })
    .await;
}

#[tokio::test]
async fn it_cuts_refuses_and_recovers() {
    let (_server, proxy, mut connection) = start().await;
    proxy.go_down();
    assert!(connection.ping::<String>().await.is_err());
    assert!(connect(&proxy).await.is_err());
    proxy.refuse(false);
    assert!(
        connect(&proxy)
            .await
            .unwrap()
            .ping::<String>()
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn it_delays() {
    let (_server, proxy, mut connection) = start().await;
    proxy.delay(Direction::Requests, SHORT / 5);
    proxy.delay(Direction::Replies, SHORT / 5);
    let started = Instant::now();
    let _: String = connection.ping().await.unwrap();
    assert!(started.elapsed() >= SHORT * 2 / 5);
}

#[tokio::test]
async fn swallowed_replies_are_lost_after_the_command_was_applied() {
    let (server, proxy, mut connection) = start().await;
    proxy.black_hole(Direction::Replies, true);
    set_in_vain(&mut connection, "k").await;
    eventually("it was applied", async || server.exists("k")).await;
    // By the end of this, the first reply was swallowed.
    assert!(is_deaf(&mut connection).await);
    proxy.black_hole(Direction::Replies, false);
    assert!(is_deaf(&mut connection).await, "stays deaf");
    assert!(
        connect(&proxy)
            .await
            .unwrap()
            .ping::<String>()
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn stalled_requests_arrive_late() {
    let (server, proxy, mut connection) = start().await;
    proxy.stall(Direction::Requests, true);
    set_in_vain(&mut connection, "k").await;
    assert!(!server.exists("k"));
    proxy.stall(Direction::Requests, false);
    eventually("the request arrives", async || server.exists("k")).await;
}

#[tokio::test]
async fn frozen_connections_stay_open_and_new_ones_work() {
    let (server, proxy, mut connection) = start().await;
    proxy.freeze_open_connections();
    assert!(is_deaf(&mut connection).await);
    assert_eq!(server.clients().len(), 1);
    assert!(
        connect(&proxy)
            .await
            .unwrap()
            .ping::<String>()
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn one_reply_is_lost_in_silence_or_with_its_connection() {
    for then in [Then::Silence, Then::Cut] {
        let (server, proxy, mut connection) = start().await;
        proxy.lose_reply_to(|args| args[0] == b"SET" && args[1] == b"b", then);
        let () = connection.set("a", 1).await.unwrap();
        assert!(!proxy.trap_sprung());
        match then {
            Then::Silence => set_in_vain(&mut connection, "b").await,
            Then::Cut | Then::Lost => {
                assert!(connection.set::<_, _, ()>("b", 1).await.is_err());
            }
        }
        eventually("it was applied, and its reply is lost", async || {
            proxy.trap_sprung() && server.exists("b")
        })
        .await;
    }
}

#[tokio::test]
async fn only_messages_are_lost() {
    let (server, proxy, mut connection) = start().await;
    let (mut sink, _stream) = listen(&proxy).await;
    proxy.lose_messages(true);
    sink.subscribe("c").await.unwrap();
    assert_eq!(server.query::<i64>(&["PUBLISH", "c", "lost"]), 1);
    eventually("the message was seen", async || proxy.messages() == 1).await;
    sink.unsubscribe("c").await.unwrap();
    assert!(connection.ping::<String>().await.is_ok());
}

#[tokio::test]
async fn replaced_server_connections_lose_their_subscriptions() {
    let (server, proxy, mut connection) = start().await;
    let (mut sink, _stream) = listen(&proxy).await;
    sink.subscribe("c").await.unwrap();
    assert_eq!(server.subscribers("c"), 1);
    proxy.replace_servers();
    eventually("nobody is subscribed", async || {
        proxy.replaced() == 2 && server.subscribers("c") == 0
    })
    .await;
    assert!(connection.ping::<String>().await.is_ok());
    sink.subscribe("c").await.unwrap();
    assert_eq!((server.subscribers("c"), proxy.connections()), (1, 2));
}

#[tokio::test]
async fn a_request_is_rewritten_on_its_way() {
    let (server, proxy, mut connection) = start().await;
    proxy.rewrite(|args| {
        let other = [b"SET", args[1], b"2"].map(<[u8]>::to_vec).to_vec();
        (args[0] == b"SET" && args[1] == b"a").then_some(other)
    });
    let () = connection.set("a", 1).await.unwrap();
    let () = connection.set("b", 1).await.unwrap();
    let found: (i64, i64) = server.query(&["MGET", "a", "b"]);
    assert_eq!((found, proxy.rewrites()), ((2, 1), 1));
}
