//! The command line.

use std::path::PathBuf;

use examples::Failure;
use lexopt::prelude::{Long, Short, Value, ValueExt};

pub(crate) const HELP: &str = "\
A review site with a flash sale, on Redis, SQLite and these locks: sign-in,
cached pages, ids, three ways to sell, likes, feeds, shops nearby.

Usage: review-site [options]

Without --serve, it proves what each piece promises, prints the figures and ends.

  --serve           stay up, with a page to click through
  --port N          the port of the site [3000]; 0 for a free one
  --processes N     processes behind that port [1 with --serve, 3 without]
  -h, --help        this text

Environment:
  LOCK_URL          the Redis server, e.g. redis://127.0.0.1/ [one of its own]
  REDIS_SERVER_BIN  the program for one of its own [redis-server]
  TRACE             set: each process logs its requests and their locks

What it writes to Redis begins with `site:`, and is removed at the end.

Exit code: 0 all is proved, or the site was asked to end; 1 something is not so;
2 it could not start, or a process of it failed; 130 the proofs were interrupted.
";

/// The task that the program was asked to do.
#[derive(Debug)]
pub(crate) enum Task {
    Help,
    Prove {
        processes: usize,
    },
    Serve {
        port: u16,
        processes: usize,
    },
    /// The task of a process behind the port. It is not in the help.
    Process {
        database: PathBuf,
    },
}

/// Reads the command line.
pub(crate) fn parse() -> Result<Task, Failure> {
    Ok(parse_from(lexopt::Parser::from_env())?)
}

fn parse_from(mut parser: lexopt::Parser) -> Result<Task, lexopt::Error> {
    let (mut serve, mut port, mut processes) = (false, None, None);
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Task::Help),
            Long("serve") => serve = true,
            Long("port") => port = Some(parser.value()?.parse()?),
            Long("processes") => {
                processes = Some(parser.value()?.parse_with(|text| match text.parse() {
                    Ok(many @ 1..=64) => Ok(many),
                    _ => Err("not a number from 1 to 64"),
                })?);
            }
            Value(word) if word == "process" => {
                let database = parser.value()?.into();
                return Ok(Task::Process { database });
            }
            other => return Err(other.unexpected()),
        }
    }
    match (serve, port) {
        (false, Some(_)) => Err("--port is for --serve".into()),
        (false, None) => Ok(Task::Prove {
            processes: processes.unwrap_or(3),
        }),
        (true, port) => Ok(Task::Serve {
            port: port.unwrap_or(3000),
            processes: processes.unwrap_or(1),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Task, lexopt::Error> {
        parse_from(lexopt::Parser::from_args(line.split_whitespace()))
    }

    #[test]
    fn options_change_the_task() {
        let task = parse("--serve --port 8080 --processes=4").unwrap();
        let expected = matches!(
            task,
            Task::Serve {
                port: 8080,
                processes: 4
            }
        );
        assert!(expected, "{task:?}");
        let task = parse("").unwrap();
        assert!(matches!(task, Task::Prove { processes: 3 }), "{task:?}");
    }

    #[test]
    fn mistakes_are_named() {
        for (line, word) in [
            ("--port 8080", "--serve"),
            ("--serve --port web", "web"),
            ("--processes 0", "from 1 to 64"),
            ("--process 3", "--process"),
            ("serve", "serve"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
