//! The commands by which docs/operations.md frees a lock on Redis. Those of the databases are in `sql/by_hand.rs`.

use std::process::Command;
use std::time::Duration;

use lock_runtime::LostReason;
use tests::RedisServer;
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_freed_by_hand_as_the_page_says() {
    let page = include_str!("../../../docs/operations.md");
    let (_, page) = page.split_once("To free a mutex").expect("the paragraph");
    let (text, block) = page.split_once("```text\n").expect("a block");
    let (commands, _) = block.split_once("```").expect("its end");
    let hash = text.split('`').find(|code| code.contains("sha1sum"));

    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let hour = Duration::from_secs(60 * 60);
    let guard = locks.mutex("order:17").lease(hour).acquire().await;
    let guard = guard.unwrap();
    let holders: Vec<String> = server.ask(&["HKEYS", "lock:order:17"]).await;
    assert!(holders[0].starts_with(&locks.id()), "{holders:?}");
    let hash = hash.expect("a command").replace("HOLDER", &holders[0]);
    let hash = Command::new("sh").args(["-c", &hash]).output().unwrap();
    let hash = String::from_utf8(hash.stdout).unwrap();
    for command in commands.lines() {
        let command = command.replace("HASH", hash.trim());
        let words: Vec<&str> = command.split_whitespace().collect();
        let _: i64 = server.ask(&words).await;
    }
    // By its next renewal, it would be told with another reason.
    let told = timeout(Duration::from_secs(120), guard.lost().wait()).await;
    assert_eq!(told.expect("it is told"), LostReason::ForceReleased);
    drop(locks.mutex("order:17").acquire().await.unwrap());
}
