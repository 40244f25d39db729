//! Tests of the bugs that are planted to see the torture catch them, and of what is written about the torture.

use std::fs;
use std::path::Path;
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

#[test]
fn the_page_of_evidence_has_the_tables_of_the_torture() {
    let mut torture = Command::new(env!("CARGO_BIN_EXE_torture"));
    let printed = torture.arg("--tables").output().unwrap();
    let tables = String::from_utf8_lossy(&printed.stdout);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/evidence.md")).unwrap();
    let tables: Vec<&str> = tables.split("\n\n").collect();
    assert_eq!(tables.len(), 2, "faults, and planted bugs: {tables:?}");
    for table in tables {
        assert!(
            page.contains(table.trim_end()),
            "docs/evidence.md needs this table of `scripts/torture --tables`:\n{table}"
        );
    }
}
