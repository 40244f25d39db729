//! Tests of what the tests of one process share: namespaces keep it apart, and it ends with the process.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use tests::shared::{Share, Topology};
use tests::{RedisServer, eventually};

fn master(topology: &Topology) -> &RedisServer {
    match topology {
        Topology::Sentinel(group) => &group.servers[0],
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_test_sees_and_flushes_what_is_its_own() {
    let topology = Topology::sentinel();
    let server = master(topology);
    let (own, other) = (Share::of(topology, "own"), Share::of(topology, "not_own"));
    own.assert_deserted().await;
    for key in ["@own:k", "{@own:k}:queue", "lock:fence:{0}", "@not_own:k"] {
        let _: String = server.query(&["SET", key, "1"]);
    }
    let left = tokio::time::timeout(Duration::from_millis(200), own.assert_clean()).await;
    assert!(left.is_err(), "there are keys");
    own.flush();
    assert_eq!(server.keys(), ["@not_own:k"]);
    own.assert_deserted().await;
    other.flush();
    other.assert_deserted().await;
}

/// Runs the process that the test below kills. This is not a test.
#[tokio::test]
#[ignore = "runs for ever; the test below starts it"]
async fn a_process_with_servers() {
    let server = master(Topology::sentinel());
    let dir: (String, String) = server.query(&["CONFIG", "GET", "dir"]);
    println!("\nserver {} {}", server.addr(), dir.1);
    std::future::pending().await
}

#[tokio::test]
async fn shared_servers_and_their_files_end_with_a_killed_process() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "shared::a_process_with_servers",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines
        .map_while(Result::ok)
        .find(|line| line.starts_with("server "));
    let told = told.expect("it says where its server is");
    let [_, addr, dir] = told.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{told}");
    };
    assert!(TcpStream::connect(addr).is_ok() && std::fs::exists(dir).unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("nobody listens and nothing is left", async || {
        TcpStream::connect(addr).is_err() && !std::fs::exists(dir).unwrap()
    })
    .await;
}
