//! Tests of a name with several addresses, only one of which is usable.

use std::net::{IpAddr, TcpListener};

use super::*;
use crate::backend::Backend;
use crate::backend::kit::names::HostNames;
use crate::backend::redis::DialOptions;

const NAME: &str = "several.invalid";

/// Connects to a name with these addresses of this machine.
async fn connect(server: &TestServer, last_bytes: &[u8]) -> Result<Arc<RedisBackend>, LockError> {
    let addresses = last_bytes
        .iter()
        .map(|last| IpAddr::from([127, 0, 0, *last]));
    let options = DialOptions::of_names(HostNames::of(NAME, addresses.collect()));
    let target = Target::parse(&format!("redis://{NAME}:{}/", server.port()))?;
    // A silent host costs half of it. The rest is for a busy machine.
    let patient = Options {
        call_timeout: CALL,
        ..Options::default()
    };
    let connected = connect_to(target.with(options)?, patient).await;
    connected.map(|(backend, _)| backend)
}

/// Starts a replica of the server at another address.
async fn replica_of(server: &TestServer) -> TestServer {
    let replica = server.replica_at("127.0.0.3");
    until("the replica is one", async || {
        server
            .text("INFO replication")
            .await
            .contains("connected_slaves:1")
    })
    .await;
    replica
}

async fn take_a_lock(backend: &RedisBackend) {
    let (key, holder) = (key("k"), backend.router.link().check.opening.ids.fresh());
    let acquired = backend.acquire(request(&key, holder, 5_000)).await.unwrap();
    granted(acquired);
    backend.release(hold_ref(&key, holder), CALL).await.unwrap();
}

#[tokio::test]
async fn connecting_skips_a_silent_host_and_a_replica() {
    let server = TestServer::start().await;
    // It accepts connections, and sends nothing.
    let _silent = TcpListener::bind(("127.0.0.2", server.port())).unwrap();
    let replica = replica_of(&server).await;
    let backend = connect(&server, &[2, 3, 1]).await.unwrap();
    take_a_lock(&backend).await;
    drop(replica);
}

#[tokio::test]
async fn the_error_names_every_address_and_its_reason() {
    let server = TestServer::start().await;
    let mut replica = replica_of(&server).await;
    let _silent = TcpListener::bind(("127.0.0.2", server.port())).unwrap();
    let said = connect(&server, &[2, 3]).await.map(drop).unwrap_err();
    let said = said.to_string();
    for part in [
        "at 127.0.0.2: no connection within",
        "does not answer HELLO",
        "at 127.0.0.3: it is not a master but a",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    replica.kill();
}
