//! Tests of programs that the book shows, against what they are taken from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the code blocks of a text whose language begins with `language`.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let parts = text.split("\n```").skip(1).step_by(2);
    let blocks = parts.filter(|part| part.starts_with(language));
    blocks
        .filter_map(|part| Some(part.split_once('\n')?.1))
        .collect()
}

#[test]
fn the_blocks_of_the_tutorial_are_its_program_and_its_tests() {
    let page = read("docs/tutorial.md");
    let (program, tests) = page.split_once("\n## 15. Test it\n").unwrap();
    for (text, file) in [(program, "main.rs"), (tests, "tests.rs")] {
        let pasted = blocks(text, "rust").join("\n\n") + "\n";
        let file = read(&format!("examples/src/bin/tutorial/{file}"));
        for (number, (pasted, line)) in pasted.lines().zip(file.lines()).enumerate() {
            assert_eq!(pasted, line, "line {} of the example", number + 1);
        }
        assert_eq!(pasted, file);
    }
}

#[test]
fn the_guides_program_compiles_with_the_shown_dependencies() {
    let guide = read("docs/guide.md");
    let (_, guide) = guide.split_once("\n## Add it\n").unwrap();
    let (section, _) = guide.split_once("\n## By hand\n").unwrap();
    let [dependencies] = blocks(section, "toml")[..] else {
        panic!("not one list of dependencies in {section}");
    };
    let [program] = blocks(section, "rust")[..] else {
        panic!("not one program in {section}");
    };
    let example = read("examples/src/bin/quickstart.rs");
    let (_, example) = example.split_once("\n\n").unwrap();
    assert_eq!(program, example.trim_end(), "the example `quickstart`");
    let tokio = section.split('`').find(|it| it.starts_with("tokio = "));

    let checkout = root().canonicalize().unwrap();
    let dependencies = dependencies.replace('…', checkout.to_str().unwrap());
    let manifest = format!(
        "[package]\nname = \"pasted\"\nedition = \"2024\"\n\n{dependencies}\n{}\n",
        tokio.unwrap(),
    );
    let project = tempfile::tempdir().unwrap();
    fs::create_dir(project.path().join("src")).unwrap();
    fs::write(project.path().join("Cargo.toml"), manifest).unwrap();
    fs::write(project.path().join("src/main.rs"), program).unwrap();
    fs::copy(
        checkout.join("Cargo.lock"),
        project.path().join("Cargo.lock"),
    )
    .unwrap();
    // `examples/tests/programs.rs` runs it.
    let output = Command::new(env!("CARGO"))
        .args(["check", "--quiet", "--offline"])
        .current_dir(project.path())
        .env(
            "CARGO_TARGET_DIR",
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("pasted"),
        )
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "warnings");
}
