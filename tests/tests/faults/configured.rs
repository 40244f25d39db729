//! Tests of processes that are configured by their environment.

use std::process::Command;

use tests::{CommandStats, RedisServer};

/// Runs the holder with these variables and returns what it says.
fn holder(task: &str, variables: &[(&str, &str)]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_holder"))
        .arg(task)
        .envs(variables.iter().copied())
        .output()
        .expect("run the holder");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).expect("text");
    said.trim().to_owned()
}

#[test]
fn a_process_connects_by_the_variables_of_its_environment() {
    let server = RedisServer::builder().requirepass("hunter2").start();
    let url = server.url();
    for task in ["configured", "threads"] {
        let stats = CommandStats::of(&server);
        let said = holder(
            task,
            &[
                ("LOCK_URL", &url),
                ("LOCK_NAMESPACE", "shop:"),
                ("LOCK_LEASE", "90s"),
                ("LOCK_CALL_TIMEOUT", "15s"),
            ],
        );
        assert_eq!(said, "ok", "{task}");
        assert!(CommandStats::of(&server).since(&stats).scripts() >= 2);
        assert_eq!(server.stray_keys(), Vec::<String>::new(), "{task}");
    }
}

#[test]
fn a_wrong_variable_is_named_without_the_password() {
    let url = "redis://:hunter2@nowhere.invalid/";
    for (variable, value, why) in [
        (
            "LOCK_LAESE",
            "5s",
            "`LOCK_LAESE` is no setting; did you mean `LOCK_LEASE`?",
        ),
        (
            "LOCK_LEASE",
            "5",
            "`LOCK_LEASE`: the duration `5` needs a unit",
        ),
        ("LOCK_URL", "redis://:hunter2@host:x/", "malformed"),
    ] {
        let said = holder("configured", &[("LOCK_URL", url), (variable, value)]);
        assert!(said.starts_with("error InvalidConfig"), "{said}");
        assert!(said.contains(why) && !said.contains("hunter2"), "{said}");
    }
}
