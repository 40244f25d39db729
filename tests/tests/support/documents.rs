//! Tests of documents against what they speak of.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::pasted::read;

/// Collects all functions in the Rust files below a directory.
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

/// Collects all files below a directory, as their paths from the root, without what builds leave there.
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
fn the_operations_page_quotes_errors_and_log_lines_of_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for part in ["lock-runtime/src", "tower-lock/src"] {
        files_below(&root, &root.join(part), &mut files);
    }
    // A text goes on in the next line after a backslash.
    let code = files.iter().map(|file| {
        let text = fs::read_to_string(root.join(&file[1..])).unwrap();
        let mut lines = text.split("\\\n").map(str::trim_start);
        let first = lines.next().unwrap_or_default().to_owned();
        lines.fold(first, |text, line| text + line)
    });
    let code: Vec<String> = code.collect();
    let page = fs::read_to_string(root.join("docs/operations.md")).unwrap();
    let (_, tables) = page.split_once("## What the log says").unwrap();
    let (tables, _) = tables.split_once("## Why a lock was lost").unwrap();
    let mut quoted = 0;
    for row in tables.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = row.split(" | ").collect();
        let is_of_the_log = ["| error", "| warning", "| information"].contains(&cells[0]);
        let cell = cells[usize::from(is_of_the_log)].replace("``", "");
        // A text that holds a code span stands between two pairs of backticks.
        let texts: Vec<_> = match row.contains("``") {
            true => vec![cell.as_str()],
            false => cell.split('`').skip(1).step_by(2).collect(),
        };
        for part in texts.iter().flat_map(|text| text.split('…')) {
            let part = part.trim().trim_start_matches("refused: ");
            let is_there = |part: &str| code.iter().any(|text| text.contains(part));
            // Some texts are put together of two.
            let mut cuts = part.match_indices(' ').map(|(at, _)| part.split_at(at));
            assert!(
                is_there(part)
                    || cuts.any(|(one, two)| is_there(one) && is_there(two.trim_start())),
                "no error and no log line has {part:?}"
            );
            quoted += 1;
        }
    }
    assert!(quoted > 40, "only {quoted} were found");
}

#[test]
fn the_table_of_a_managers_options_has_them_all() {
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lock-runtime/src/api");
    let text = |file| fs::read_to_string(api.join(file)).unwrap();
    let builder = text("builder.rs");
    let (table, setters) = builder.split_once("pub struct LockManagerBuilder").unwrap();
    let setters = setters.to_owned() + &text("handshake.rs");
    let setters: Vec<_> = setters
        .split("pub fn ")
        .skip(1)
        .filter_map(|rest| rest.split_once('('))
        .filter(|(_, arguments)| arguments.trim_start().starts_with("mut self"))
        .map(|(name, _)| name.split('<').next().unwrap())
        .collect();
    assert!(setters.len() > 20, "only {setters:?} were found");
    for setter in setters {
        let named = table.contains(&format!("(Self::{setter})"));
        assert!(named, "the table lacks `{setter}`");
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

#[test]
fn the_architecture_names_what_there_is_in_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    files_below(&root, &root, &mut files);
    let is_code = |file: &&String| !file.ends_with(".md") && !file.starts_with("/docs/");
    let code = files
        .iter()
        .filter(is_code)
        .map(|file| fs::read(root.join(&file[1..])).unwrap());
    let code: Vec<u8> = code.flatten().collect();
    let is_part = |c: &u8| c.is_ascii_alphanumeric() || *c == b'_';
    let words: HashSet<&[u8]> = code.split(|c| !is_part(c)).collect();
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let mut named = 0;
    for name in text.split('`').skip(1).step_by(2) {
        let is_path = name
            .split("::")
            .all(|part| part.bytes().all(|c| is_part(&c)));
        for part in name.split("::").filter(|_| is_path) {
            assert!(words.contains(part.as_bytes()), "there is no {name}");
            named += 1;
        }
    }
    assert!(named > 150, "only {named} were found");
}

/// Returns the lines of a Markdown text that are outside of code blocks, without what is in code spans.
fn prose(text: &str) -> Vec<String> {
    let mut in_block = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            lines.push(line.split('`').step_by(2).collect());
        }
    }
    lines
}

/// Returns the labels that a Markdown text defines, with where they lead.
fn definitions(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter(|line| line.starts_with('['));
    let pairs = lines.filter_map(|line| line.split_once("]: "));
    pairs
        .map(|(label, target)| (label[1..].to_owned(), target.to_owned()))
        .collect()
}

/// Returns where the links in the text itself lead.
fn inline_links(text: &str) -> Vec<String> {
    let targets = |line: &String| -> Vec<String> {
        let rest = line.split("](").skip(1);
        rest.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()))
            .collect()
    };
    prose(text).iter().flat_map(targets).collect()
}

/// Returns the labels that links of the text name: `[words][label]`.
fn used_labels(text: &str) -> Vec<String> {
    let labels = |line: &String| -> Vec<String> {
        let rest = line.split("][").skip(1);
        rest.filter_map(|rest| Some(rest.split_once(']')?.0.to_owned()))
            .collect()
    };
    prose(text).iter().flat_map(labels).collect()
}

/// Returns the anchors that GitHub and rustdoc make of the headings of a page.
fn anchors(text: &str) -> HashSet<String> {
    let mut in_block = false;
    let lines = text.lines().filter(|line| {
        in_block ^= line.starts_with("```");
        !in_block && line.starts_with('#')
    });
    let name = |line: &str| -> String {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    lines.map(name).collect()
}

#[test]
fn the_links_of_the_documents_lead_to_what_there_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    files_below(&root, &root, &mut files);
    // Links of the book's pages are relative to `docs/`, as those of the template are. rustdoc checks the manual.
    let elsewhere = |file: &str| {
        file.starts_with("/lock-runtime/docs/")
            || file.ends_with("page.md")
            || file == "/lock-macros/src/manual.md"
    };
    let mut followed = 0;
    for document in files
        .iter()
        .filter(|file| file.ends_with(".md") && !elsewhere(file))
    {
        let path = root.join(&document[1..]);
        let text = fs::read_to_string(&path).unwrap();
        let defined = definitions(&text);
        for label in used_labels(&text) {
            let known = defined.iter().any(|(defined, _)| *defined == label);
            assert!(known, "{document} does not define [{label}]");
        }
        let mut targets = inline_links(&text);
        targets.extend(defined.into_iter().map(|(_, target)| target));
        for target in targets.iter().filter(|target| !target.contains("://")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let linked = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            assert!(linked.exists(), "{document}: nothing is at {target}");
            if !heading.is_empty() {
                let headings = anchors(&fs::read_to_string(linked).unwrap());
                assert!(
                    headings.contains(heading),
                    "{document}: no heading {target}"
                );
            }
            followed += 1;
        }
    }
    assert!(followed > 100, "only {followed} were found");
}

#[test]
fn the_guide_shows_exactly_the_lints_that_a_crate_tries() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guide = fs::read_to_string(root.join("docs/guide.md")).unwrap();
    let tried = root.join("lock-macros/tests/users/unlocked");
    let read = |file: &str| fs::read_to_string(tried.join(file)).unwrap();
    let manifest = read("Cargo.toml");
    let (_, lints) = manifest.split_once("[lints.rust]\n").unwrap();
    for shown in [&format!("[lints.rust]\n{lints}"), &read("clippy.toml")] {
        let block = format!("```toml\n{shown}```\n");
        assert!(
            guide.contains(&block),
            "docs/guide.md does not show\n{block}"
        );
    }
    // `#[expect]` finds a lint whatever the manifest says of it.
    let code = read("src/lib.rs");
    let expected: HashSet<_> = code
        .lines()
        .filter_map(|line| line.strip_prefix("#[expect(")?.strip_suffix(")]"))
        .flat_map(|lints| lints.split(", "))
        .map(|lint| lint.trim_start_matches("clippy::"))
        .collect();
    // A lint that rustc reports by default is tried in `lock-macros/tests/ui/fail`.
    let denied = lints
        .lines()
        .filter_map(|line| line.strip_suffix(" = \"deny\""));
    let denied: HashSet<_> = denied.filter(|lint| *lint != "unused_must_use").collect();
    assert_eq!(expected, denied);
}

#[test]
fn the_readme_is_short_and_links_to_every_page_of_the_book() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let words = readme.split_whitespace().count();
    assert!(words < 1_000, "README.md has {words} words");
    let contents = fs::read_to_string(root.join("docs/README.md")).unwrap();
    for page in fs::read_dir(root.join("docs")).unwrap() {
        let page = page.unwrap().file_name().into_string().unwrap();
        if page.ends_with(".md") {
            let from_readme = readme.contains(&format!("](docs/{page}"));
            assert!(from_readme, "README.md does not link to {page}");
            let listed = page == "README.md" || contents.contains(&format!("]({page})"));
            assert!(listed, "docs/README.md does not list {page}");
        }
    }
}

#[test]
fn the_pages_of_the_book_are_in_rustdoc_with_working_links() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let module = read("lock-runtime/src/_documentation.rs");
    let links = read("lock-runtime/src/links.txt");
    for page in fs::read_dir(root.join("docs")).unwrap() {
        let page = page.unwrap().file_name().into_string().unwrap();
        // `README.md` is the table of contents, which the module has itself. `scripts/bench` writes `benchmarks.md`.
        if !page.ends_with(".md") || ["README.md", "benchmarks.md"].contains(&page.as_str()) {
            continue;
        }
        let packaged = fs::read_link(root.join("lock-runtime/docs").join(&page));
        let packaged = packaged.unwrap_or_else(|_| panic!("no link lock-runtime/docs/{page}"));
        assert_eq!(packaged, Path::new("../../docs").join(&page));
        let included = module.contains(&format!(" = \"../docs/{page}\";\n"));
        assert!(included, "_documentation.rs does not include {page}");
        let text = fs::read_to_string(root.join("docs").join(&page)).unwrap();
        for target in inline_links(&text) {
            let anywhere = target.contains("://") || target.starts_with('#');
            assert!(anywhere, "{page}: {target} leads nowhere in rustdoc");
        }
        for (label, target) in definitions(&text) {
            let known = target.contains("://") || links.contains(&format!("\n[{label}]: "));
            assert!(known, "links.txt does not define [{label}] of {page}");
        }
    }
}

#[test]
fn the_workflow_runs_each_step_of_the_checks() {
    let checks = read(".ci/run");
    let defined = checks.lines().filter_map(|line| line.strip_prefix("step_"));
    let steps: HashSet<&str> = defined
        .filter_map(|line| line.split_once('('))
        .map(|it| it.0)
        .collect();
    assert!(steps.len() > 10, "{steps:?}");
    let workflow = read(".github/workflows/ci.yml");
    let jobs = workflow.lines().map(str::trim);
    // Systems without servers run `unit`, in a job of its own.
    let run: HashSet<&str> = jobs
        .filter_map(|line| line.strip_prefix("- "))
        .chain(["unit"])
        .collect();
    let missing: Vec<_> = steps.difference(&run).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(workflow.contains(".ci/run unit"));
}
