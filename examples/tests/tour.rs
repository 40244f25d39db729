//! The tour prints what it promises to show.

use std::process::{Command, Output};

use tests::RedisServer;

fn tour(url: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tour"))
        .env("LOCK_URL", url)
        .output()
        .expect("run tour")
}

/// Returns the numbers that follow `token` in the lines about `lock`.
fn tokens(text: &str, lock: &str) -> Vec<u64> {
    text.lines()
        .filter(|line| line.contains(&format!("holds {lock}")))
        .filter_map(|line| line.split_once("token ")?.1.split(',').next()?.parse().ok())
        .collect()
}

fn check(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert_eq!(errors, "");

    let turns: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("holds report:monday") || line.ends_with("is done"))
        .map(|line| {
            if line.ends_with("done") {
                "done"
            } else {
                "holds"
            }
        })
        .collect();
    assert_eq!(turns, ["holds", "done", "holds", "done"], "{text}");
    let tokens = tokens(&text, "report:monday");
    assert!(tokens.len() == 2 && tokens[0] < tokens[1], "{text}");

    for line in [
        "carol holds report:tuesday",
        "the store says: held by",
        "carol's body is cancelled",
        "released by force: true",
        "carol is told: lock `report:tuesday` was lost",
    ] {
        assert!(text.contains(line), "no `{line}` in\n{text}");
    }
    assert!(!text.contains("never printed"), "{text}");
}

#[test]
fn two_tasks_take_turns_and_a_forced_loss_cancels_the_body() {
    check(&tour(""));
}

#[test]
fn it_shows_the_same_on_redis_and_leaves_no_lock_there() {
    let server = RedisServer::start();
    check(&tour(&server.url()));
    let left: Vec<String> = server.keys();
    assert!(
        left.iter().all(|key| key.starts_with("lock:fence:")),
        "{left:?}"
    );
}

#[test]
fn a_store_that_is_away_or_misspelt_is_one_line_and_exit_code_2() {
    for (url, why) in [
        ("redis://127.0.0.1:1/", "refused"),
        ("redsi://127.0.0.1/", "scheme"),
    ] {
        let output = tour(url);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.contains(url) && errors.contains(why), "{errors}");
    }
}
