//! Tests of a PostgreSQL server whose disk is full.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lock_runtime::LostReason;
use tests::{PostgresServer, eventually_within};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);

/// A small file system in memory, which is unmounted when this value is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut mount = Command::new("mount");
        mount.args([
            "-t",
            "tmpfs",
            "-o",
            &format!("size={size},mode=755"),
            "none",
        ]);
        let mounted = mount.arg(dir.path()).status();
        assert!(
            mounted.is_ok_and(|status| status.success()),
            "run it as root"
        );
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "mounts a file system, which root may: run it by hand"]
async fn a_full_disk_ends_holds_on_time_and_locks_return_with_space() {
    let disk = SmallDisk::mount("160m");
    let mut server = PostgresServer::within(disk.path());
    let builder = tests::builder().ensure_schema(true).call_timeout(500 * MS);
    let locks = builder.connect(&server.url()).await.unwrap();
    let guard = locks.mutex("k").lease(3_000 * MS).acquire().await.unwrap();
    let first = guard.fencing_token().unwrap();
    let ballast = disk.path().join("ballast");
    let mut fill = Command::new("dd");
    fill.args(["if=/dev/zero", "bs=64k"])
        .arg(format!("of={}", ballast.display()));
    // The command ends when there is no room.
    assert!(!fill.output().expect("dd").status.success());
    // The writes of locks fit into the log that exists already. This fills it: the server ends, and cannot recover.
    let mut fill_log = tests::postgres::program("psql");
    fill_log.args(["-X", "-q", "-d", &server.url(), "-c"]);
    fill_log.arg("SELECT pg_logical_emit_message(false, '', repeat('x', 100000)) FROM generate_series(1, 2000)");
    assert!(!fill_log.output().expect("psql").status.success());
    assert!(server.log().contains("No space left on device"));
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    let refused = locks.mutex("other").try_acquire().await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    drop(guard);
    std::fs::remove_file(ballast).expect("room");
    server.restart();
    eventually_within(LONG, "locks can be had", async || {
        let next = locks.mutex("k").wait(LONG).acquire().await;
        next.is_ok_and(|next| next.fencing_token().unwrap() > first)
    })
    .await;
}
