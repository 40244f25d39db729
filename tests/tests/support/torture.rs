//! Tests of the bugs that are planted to see the torture catch them, and of what is written about torture and simulation.

use std::collections::BTreeSet;
use std::process::Command;

use tests::judge::{Log, SIMULATED, overlaps};
use tests::planted;

use crate::pasted::read;

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
    let page = read("docs/evidence.md");
    let tables: Vec<&str> = tables.split("\n\n").collect();
    assert_eq!(tables.len(), 2, "faults, and planted bugs: {tables:?}");
    for table in tables {
        assert!(
            page.contains(table.trim_end()),
            "docs/evidence.md needs this table of `scripts/torture --tables`:\n{table}"
        );
    }
}

/// What is read beside readers is not too much, however long it lasts: only the writer is.
#[test]
fn a_crowd_lasts_until_the_rest_of_it_has_room() {
    let mut log = Log::default();
    for said in [
        "share 1000 hold rw-1 c0.0.0 1 10 20",
        "share 1 hold rw-1 c1.0.0 0 15 90",
        "share 1 hold rw-1 c2.0.0 0 16 80",
    ] {
        log.note(said);
    }
    let pairs = overlaps(&log).into_iter();
    let pairs: Vec<_> = pairs.map(|(one, two)| (one.holder, two.from)).collect();
    assert_eq!(
        pairs,
        [("c0.0.0".to_owned(), 15), ("c0.0.0".to_owned(), 16)]
    );
}

/// The cells of the table whose first line begins so.
fn table(page: &str, head: &str) -> Vec<Vec<String>> {
    let (_, rows) = page.split_once(&format!("\n{head}")).unwrap();
    let rows = rows.lines().skip(2).take_while(|row| row.starts_with('|'));
    let cells = |row: &str| {
        row.trim_matches('|')
            .split('|')
            .map(|it| it.trim().to_owned())
            .collect()
    };
    rows.map(cells).collect()
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn the_table_of_promises_has_every_check_of_the_simulation() {
    let page = read("tests/README.md");
    let promises = table(&page, "| promise | checks |");
    let named: BTreeSet<&str> = promises.iter().flat_map(|row| quoted(&row[1])).collect();
    let checks: BTreeSet<&str> = SIMULATED.iter().copied().collect();
    assert_eq!(named, checks);
    let sources = [
        "tests/simulation/runner.rs",
        "tests/simulation/verdict.rs",
        "tests/simulation/world.rs",
        "tests/src/judge/checks.rs",
    ];
    let code: String = sources.into_iter().map(read).collect();
    for check in checks {
        let is_printed =
            code.contains(&format!("(\"{check}\"")) || code.contains(&format!("[{check}]"));
        assert!(is_printed, "no code finds `{check}`");
    }
}

#[test]
fn the_table_of_promises_has_every_promise() {
    let page = read("tests/README.md");
    let rows = table(&page, "| promise | checks |");
    let rows: BTreeSet<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let guarantees = read("docs/guarantees.md");
    let (_, guaranteed) = guarantees.split_once("\n## Guaranteed\n").unwrap();
    let (guaranteed, sections) = guaranteed.split_once("\n## ").unwrap();
    let promises = guaranteed.lines().filter_map(|line| {
        let (promise, _) = line.strip_prefix("**")?.split_once("**")?;
        Some((promise.trim_end_matches('.'), "guaranteed".to_owned()))
    });
    let sections = sections.lines().enumerate().filter_map(|(number, line)| {
        let section = if number == 0 {
            line
        } else {
            line.strip_prefix("## ")?
        };
        Some((
            section,
            section.to_lowercase().replace(' ', "-").replace('/', ""),
        ))
    });
    let mut found = 0;
    for (promise, anchor) in promises.chain(sections) {
        let row = format!("[{promise}](../docs/guarantees.md#{anchor})");
        assert!(rows.contains(row.as_str()), "tests/README.md has no {row}");
        found += 1;
    }
    assert_eq!(rows.len(), found + 1, "a row is of no promise");
}

#[test]
fn the_page_of_evidence_has_every_planted_bug_of_the_simulation() {
    let page = read("docs/evidence.md");
    let rows = table(&page, "| planted bug | seeds, median |");
    let rows: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let bugs = planted::ALL.iter().filter(|bug| bug.is_above_the_trait());
    let bugs: Vec<&str> = bugs.map(|bug| bug.name).collect();
    assert_eq!(
        rows, bugs,
        "`scripts/simulate --planted-bugs` prints the table"
    );
}
