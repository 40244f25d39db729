//! The flash sale: the table's facts, the exit codes, and the files and locks that must not be left.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tests::stops::{STOP_OF_A_GRANT, in_one_of_a_few_rounds};
use tests::{RedisServer, eventually_within};
use tower_lock::RefusalKind;

/// The longest wait for an event. Only a test that fails spends it; on a busy machine a sale takes long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A sale that is quick in a debug build.
const SMALL: &[&str] = &["--stock", "20", "--users", "60", "--clicks", "3"];
/// A sale that with the lock takes long enough to be interrupted.
const LONG: &[&str] = &["--stock", "1000", "--users", "1000", "--clicks", "1"];

fn flash_sale(url: &str, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flash-sale"));
    command.env("LOCK_URL", url).args(options);
    command
}

fn run(mut command: Command) -> Output {
    command.output().expect("run flash-sale")
}

/// Returns the numbers of one line of the table: without the lock and with it.
fn row(text: &str, name: &str) -> (u64, u64) {
    let line = text.lines().find(|line| line.starts_with(name));
    let cells = line.and_then(|line| {
        let mut cells = line[name.len()..].split_whitespace();
        Some((cells.next()?.parse().ok()?, cells.next()?.parse().ok()?))
    });
    cells.unwrap_or_else(|| panic!("no numbers for `{name}` in\n{text}"))
}

/// Checks the facts that must be true of every small sale.
fn check(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert_eq!(errors, "", "no progress bar without a terminal");

    assert_eq!(row(&text, "requests"), (180, 180));
    let (sold_without, sold) = row(&text, "sold");
    let (oversold_without, oversold) = row(&text, "oversold");
    let (doubles_without, doubles) = row(&text, "double orders");
    assert_eq!((sold, oversold, doubles), (20, 0, 0), "{text}");
    assert_eq!(oversold_without, sold_without.saturating_sub(20), "{text}");
    assert_eq!(row(&text, "failed"), (0, 0), "{text}");
    let (_, has_one) = row(&text, "refused: has one");
    let (_, sold_out) = row(&text, "refused: sold out");
    assert_eq!(sold + has_one + sold_out, 180, "{text}");
    assert!(text.contains("With the lock, 20 of 20 were sold, to 20 users."));
    // It is not certain that the sale without the lock goes wrong, but if it goes well, that must be called luck.
    let lucky = oversold_without == 0 && doubles_without == 0;
    assert_eq!(lucky, text.contains("luck"), "{text}");
}

#[test]
fn the_lock_sells_what_is_in_stock_and_once_to_each_user() {
    check(&run(flash_sale("", SMALL)));
}

#[tokio::test]
async fn three_processes_share_a_sale_on_redis_and_leave_no_lock() {
    let server = RedisServer::start();
    // What one process's release gives another one lasts for a second at first, and a busy machine may stop that one for
    // longer. The customer whose purchase has lost the lock is told, and the sale says so.
    in_one_of_a_few_rounds(STOP_OF_A_GRANT, "no purchase loses the lock", async || {
        let mut command = flash_sale(&server.url(), SMALL);
        command.args(["--processes", "3"]);
        let output = run(command);
        let text = String::from_utf8_lossy(&output.stdout);
        let losses = [
            RefusalKind::Lost.detail(),
            RefusalKind::LostCompleted.detail(),
            "the lock was lost",
        ];
        let is_lost = losses.iter().any(|loss| text.contains(loss));
        if text.contains("INCOMPLETE: ") && is_lost {
            assert_eq!(row(&text, "oversold").1, 0, "{text}");
            assert_eq!(row(&text, "double orders").1, 0, "{text}");
            return false;
        }
        check(&output);
        true
    })
    .await;
    // A list of those that wait stays for some seconds.
    eventually_within(PATIENCE, "only fences are left", async || {
        let left = server.keys();
        left.iter().all(|key| key.starts_with("lock:fence:"))
    })
    .await;
}

#[test]
fn what_cannot_start_is_one_line_and_exit_code_2() {
    let away = "redis://127.0.0.1:1/";
    for (url, options, why) in [
        (away, &[][..], away),
        (away, &["--processes", "2"], away),
        ("redsi://127.0.0.1/", &[], "scheme"),
        ("", &["--processes", "2"], "set LOCK_URL"),
        ("memory://shared", &["--processes", "2"], "set LOCK_URL"),
        ("", &["--users", "0"], "between 1 and"),
        ("", &["--user", "1"], "--user"),
    ] {
        let output = run(flash_sale(url, options));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{url} {options:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.contains(why), "no `{why}` in {errors}");
    }
}

#[test]
fn help_goes_to_stdout() {
    let output = run(flash_sale("", &["--help"]));
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("--processes N"));
}

/// A sale that runs, in a directory of its own.
struct Started {
    child: Child,
    directory: TempDir,
}

impl Started {
    fn new(url: &str, options: &[&str]) -> Started {
        let directory = tempfile::tempdir().expect("a directory");
        let child = flash_sale(url, options)
            .env("TMPDIR", directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("run flash-sale");
        Started { child, directory }
    }

    /// Returns whether the sale with the lock has begun: its database exists.
    fn is_locked_sale(&self) -> bool {
        let entries = self.directory.path().read_dir().expect("read it");
        let databases = entries
            .flatten()
            .map(|entry| entry.path().join("locked.sqlite"));
        databases.into_iter().any(|path| Path::exists(&path))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal it");
    }

    fn left_behind(&self) -> usize {
        self.directory.path().read_dir().expect("read it").count()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn ctrl_c_ends_a_sale_and_removes_its_files() {
    let mut sale = Started::new("", LONG);
    eventually_within(PATIENCE, "the sale with the lock runs", async || {
        sale.is_locked_sale()
    })
    .await;
    sale.signal(Signal::INT);
    let status = sale.child.wait().expect("wait for it");
    assert_eq!(status.code(), Some(130));
    assert_eq!(sale.left_behind(), 0);
}

#[tokio::test]
async fn server_processes_end_with_their_parent_even_if_it_is_killed() {
    let server = RedisServer::start();
    for (signal, code) in [(Signal::INT, Some(130)), (Signal::KILL, None)] {
        let options = [LONG, &["--processes", "2"]].concat();
        let mut sale = Started::new(&server.url(), &options);
        eventually_within(PATIENCE, "the sale with the lock runs", async || {
            server.exists("lock:coupon:SPRING")
        })
        .await;
        sale.signal(signal);
        let status = sale.child.wait().expect("wait for it");
        assert_eq!(status.code(), code);
        eventually_within(
            PATIENCE,
            "every process has left Redis, and the lock",
            async || server.clients().is_empty() && !server.exists("lock:coupon:SPRING"),
        )
        .await;
    }
}
