//! What test programs said: how many tests passed, what failed, how long each took.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// The number of tests and programs that are named as the slowest.
const NAMED: usize = 10;

/// The outcome of one test program, read from its output line by line.
#[derive(Debug)]
pub struct Outcome {
    program: String,
    at_a_time: usize,
    passed: usize,
    ignored: usize,
    failed: Vec<String>,
    /// When each test ended.
    ended: BTreeMap<String, Duration>,
    took: Duration,
}

impl Outcome {
    /// Begins to read the output of a program that runs so many tests at a time. `0`: nobody knows how many.
    pub fn new(program: String, at_a_time: usize) -> Self {
        Self {
            program,
            at_a_time,
            passed: 0,
            ignored: 0,
            failed: Vec::new(),
            ended: BTreeMap::new(),
            took: Duration::ZERO,
        }
    }

    /// Reads a line, which was written at this time after the program's start.
    pub fn saw(&mut self, line: &str, at: Duration) {
        let line = line.trim_end();
        let Some((name, result)) = line
            .strip_prefix("test ")
            .and_then(|line| line.rsplit_once(" ... "))
        else {
            return;
        };
        // A case of a test, which counts itself.
        if name.ends_with(".rs") {
            return;
        }
        match result {
            "ok" => self.passed += 1,
            "FAILED" => self.failed.push(name.to_owned()),
            _ if result.starts_with("ignored") => self.ignored += 1,
            _ => return,
        }
        self.ended.insert(name.to_owned(), at);
    }

    /// The program has ended. One that failed without naming a test counts as a failed test.
    pub fn end(&mut self, succeeded: bool, took: Duration) {
        self.took = took;
        if !succeeded && self.failed.is_empty() {
            self.failed.push("(the program failed)".to_owned());
        }
    }

    /// Returns the program's name, and how it ended.
    pub fn title(&self) -> String {
        let Self {
            program,
            passed,
            failed,
            ..
        } = self;
        let took = self.took.as_secs_f64();
        format!(
            "{program}: {passed} passed, {} failed, in {took:.1} s",
            failed.len()
        )
    }

    /// Returns each test and the time that it took. Tests begin in the order of their names, each as soon as another one
    /// ends, so that is known without asking.
    fn times(&self) -> Vec<(Duration, &str)> {
        if self.at_a_time == 0 {
            return Vec::new();
        }
        let mut ends: Vec<Duration> = self.ended.values().copied().collect();
        ends.sort_unstable();
        let at_first = self.at_a_time.min(ends.len());
        let begins = std::iter::repeat_n(Duration::ZERO, at_first).chain(ends);
        let tests = self.ended.iter().zip(begins);
        tests
            .map(|((name, end), begin)| (end.saturating_sub(begin), name.as_str()))
            .collect()
    }
}

/// The outcomes of all programs.
#[derive(Debug, Default)]
pub struct Tally {
    outcomes: Vec<Outcome>,
}

impl Tally {
    /// Adds the outcome of a program that has ended.
    pub fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// Returns whether everything passed.
    pub fn is_good(&self) -> bool {
        self.outcomes
            .iter()
            .all(|outcome| outcome.failed.is_empty())
    }

    /// Returns what took longest, what failed, and the plain closing line.
    pub fn report(&self, took: Duration) -> String {
        let mut text = String::new();
        let all = &self.outcomes;
        let programs = all.iter().map(|it| (it.took, it.program.as_str(), ""));
        slowest(&mut text, "programs", programs);
        let tests = all.iter().flat_map(|outcome| {
            let times = outcome.times().into_iter();
            times.map(|(took, test)| (took, outcome.program.as_str(), test))
        });
        slowest(&mut text, "tests", tests);
        for outcome in all {
            for test in &outcome.failed {
                let _ = writeln!(text, "FAILED {} {test}", outcome.program);
            }
        }
        let sum = |count: fn(&Outcome) -> usize| all.iter().map(count).sum::<usize>();
        let ignored = sum(|it| it.ignored);
        let _ = writeln!(
            text,
            "{} programs in {:.0} s",
            all.len(),
            took.as_secs_f64()
        );
        let _ = write!(
            text,
            "tests: {} passed, {} failed",
            sum(|it| it.passed),
            sum(|it| it.failed.len())
        );
        if ignored > 0 {
            let _ = write!(text, ", {ignored} skipped");
        }
        text
    }
}

fn slowest<'a>(
    text: &mut String,
    of: &str,
    all: impl Iterator<Item = (Duration, &'a str, &'a str)>,
) {
    let mut all: Vec<_> = all.collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    let _ = writeln!(text, "\nThe slowest {of}:");
    for (took, program, test) in all.iter().take(NAMED) {
        let _ = writeln!(text, "{:7.1} s  {program} {test}", took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn outcome(lines: &[(&str, u32)]) -> Outcome {
        let mut outcome = Outcome::new("faults".into(), 2);
        for (line, at) in lines {
            outcome.saw(line, SECOND * *at);
        }
        outcome
    }

    #[test]
    fn a_test_begins_when_another_one_ends() {
        let outcome = outcome(&[
            ("running 4 tests\n", 0),
            ("test a ... ok\n", 3),
            ("test b - should panic ... ok\n", 1),
            ("test d ... ignored, needs root\n", 3),
            ("test c ... FAILED\n", 6),
        ]);
        let times = outcome.times();
        let expected = [
            (SECOND * 3, "a"),
            (SECOND, "b - should panic"),
            (SECOND * 5, "c"),
            (Duration::ZERO, "d"),
        ];
        assert_eq!(times, expected);
        assert_eq!((outcome.passed, outcome.ignored), (2, 1));
        assert_eq!(outcome.failed, ["c"]);
    }

    #[test]
    fn the_last_line_counts_and_failures_are_named() {
        let mut tally = Tally::default();
        let mut good = outcome(&[("test a ... ok", 1)]);
        good.end(true, SECOND);
        tally.add(good);
        assert!(tally.is_good());
        let mut bad = outcome(&[]);
        bad.end(false, SECOND * 2);
        tally.add(bad);
        assert!(!tally.is_good());
        let report = tally.report(SECOND * 3);
        assert!(
            report.contains("FAILED faults (the program failed)\n"),
            "{report}"
        );
        assert!(report.ends_with("\ntests: 1 passed, 1 failed"), "{report}");
    }
}
