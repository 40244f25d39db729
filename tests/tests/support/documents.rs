//! Documents against what they speak of.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// All functions in the Rust files below a directory.
fn functions_below(root: &Path, directory: &Path, names: &mut HashSet<String>) {
    let mut files = Vec::new();
    files_below(root, directory, &mut files);
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        let text = fs::read_to_string(root.join(&file[1..])).unwrap();
        let defined = text.lines().filter_map(|line| line.split_once("fn "));
        names.extend(defined.filter_map(|(_, rest)| Some(rest.split_once('(')?.0.to_owned())));
    }
}

#[test]
fn the_threat_model_names_tests_and_fuzz_targets_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/threat-model.md")).unwrap();
    let mut there = HashSet::new();
    for part in ["lock-macros", "lock-runtime", "tower-lock", "tests"] {
        functions_below(&root, &root.join(part), &mut there);
    }
    let mut named = 0;
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.contains("shown by"));
    for row in rows {
        let shown_by = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let (tests, targets) = shown_by.split_once("fuzz").unwrap_or((shown_by, ""));
        let quoted = |text: &str| -> Vec<String> {
            text.split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        };
        for test in quoted(tests)
            .iter()
            .filter(|test| !test.contains(['.', '[']))
        {
            assert!(there.contains(test), "no test is called {test}");
            named += 1;
        }
        for target in quoted(targets) {
            let seeds = root.join("tests/fuzz/seeds").join(&target);
            assert!(seeds.is_dir(), "no fuzz target is called {target}");
        }
    }
    assert!(named > 40, "only {named} were found");
}

/// All files below a directory, as their paths from the root, without what builds leave there.
fn files_below(root: &Path, directory: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() {
            if name != "target" && name != ".git" {
                files_below(root, &path, files);
            }
        } else {
            let path = path.strip_prefix(root).unwrap().to_string_lossy();
            files.push(format!("/{path}"));
        }
    }
}

#[test]
fn the_documents_name_files_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    files_below(&root, &root, &mut files);
    let is_name = |word: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
        let end = word.rsplit_once('.').map_or("", |(_, end)| end);
        word.chars().all(plain) && ["rs", "lua", "md"].contains(&end)
    };
    let mut named = 0;
    let documents = files.iter().filter(|file| {
        file.ends_with(".md") && !file.ends_with("/CHANGELOG.md") || file.ends_with("/lib.rs")
    });
    for document in documents {
        let text = fs::read_to_string(root.join(&document[1..])).unwrap();
        let lines = text
            .lines()
            .filter(|line| document.ends_with(".md") || line.trim_start().starts_with("//"));
        for word in lines.flat_map(|line| line.split('`').skip(1).step_by(2)) {
            if is_name(word) {
                let wanted = format!("/{}", word.trim_start_matches("../"));
                assert!(
                    files.iter().any(|file| file.ends_with(&wanted)),
                    "{document}: there is no {word}"
                );
                named += 1;
            }
        }
    }
    assert!(named > 200, "only {named} were found");
}
