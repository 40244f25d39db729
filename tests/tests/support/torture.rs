//! Tests of the bugs that are planted to see the torture catch them.

use std::process::Command;

/// A bug changes text of the library, which may move or change. Then the bug has to follow.
#[test]
fn what_each_planted_bug_changes_stands_where_it_says_and_once() {
    let mut torture = Command::new(env!("CARGO_BIN_EXE_torture"));
    let listed = torture.args(["--planted-bugs", "--list"]).output().unwrap();
    let said = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.status.success(), "{said}");
    assert!(said.lines().count() >= 60, "some are left out: {said}");
}
