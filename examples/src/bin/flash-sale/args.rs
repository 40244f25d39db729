//! The command line.

use std::path::PathBuf;

use lexopt::prelude::{Long, Short, Value, ValueExt};

use crate::storm::Size;
use crate::{Failure, LOCKED, UNLOCKED};

pub(crate) const HELP: &str = "\
Sells a coupon of which there are few to many users who click more than once,
over HTTP: first without a lock, then with one.

Usage: flash-sale [options]

  --stock N         coupons to sell [200]
  --users N         users, each of whom may buy one [1000]
  --clicks N        purchases that each user asks for at once [3]
  --connections N   HTTP requests under way at once [64]
  --processes N     server processes [1]; more than one needs LOCK_URL
  -h, --help        this text

Environment:
  LOCK_URL          where the locks live [memory://], e.g. redis://127.0.0.1/

The waits in the table are those of the customers, from click to answer.

Exit code: 0 the lock kept its promise; 1 it did not, or the sale with it did
not run to its end; 2 the sale could not start; 130 interrupted.
";

/// The task that the program was asked to do.
#[derive(Debug)]
pub(crate) enum Task {
    Help,
    Sell(Plan),
    /// The task of a server process. It is not in the help.
    Serve(Serve),
}

/// The size of a sale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) stock: u32,
    pub(crate) size: Size,
    pub(crate) processes: usize,
}

/// The options of a server process.
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) database: PathBuf,
    pub(crate) locked: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            stock: 200,
            size: Size {
                users: 1_000,
                clicks: 3,
                connections: 64,
            },
            processes: 1,
        }
    }
}

/// Reads the command line.
pub(crate) fn parse() -> Result<Task, Failure> {
    Ok(parse_from(lexopt::Parser::from_env())?)
}

fn parse_from(mut parser: lexopt::Parser) -> Result<Task, lexopt::Error> {
    let mut plan = Plan::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Task::Help),
            Long("stock") => plan.stock = number(&mut parser, 1_000_000)?,
            Long("users") => plan.size.users = number(&mut parser, 1_000_000)?,
            Long("clicks") => plan.size.clicks = number(&mut parser, 1_000)?,
            Long("connections") => plan.size.connections = number(&mut parser, 10_000)?,
            Long("processes") => plan.processes = number(&mut parser, 64)? as usize,
            Value(word) if word == "serve" => return serve(&mut parser),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Task::Sell(plan))
}

fn number(parser: &mut lexopt::Parser, most: u32) -> Result<u32, lexopt::Error> {
    parser.value()?.parse_with(|text| {
        let number: u32 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
        match number {
            1.. if number <= most => Ok(number),
            _ => Err(format!("`{number}` is not between 1 and {most}")),
        }
    })
}

fn serve(parser: &mut lexopt::Parser) -> Result<Task, lexopt::Error> {
    let database = parser.value()?.into();
    let locked = parser.value()?.parse_with(|mode| match mode {
        LOCKED => Ok(true),
        UNLOCKED => Ok(false),
        _ => Err("neither locked nor unlocked"),
    })?;
    Ok(Task::Serve(Serve { database, locked }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Task, lexopt::Error> {
        parse_from(lexopt::Parser::from_args(line.split_whitespace()))
    }

    #[test]
    fn options_change_the_plan() {
        let task = parse("--stock 7 --users=8 --clicks 9 --connections 10 --processes 2");
        let Ok(Task::Sell(plan)) = task else {
            panic!("{task:?}");
        };
        assert_eq!((plan.stock, plan.processes), (7, 2));
        assert_eq!(
            (plan.size.users, plan.size.clicks, plan.size.connections),
            (8, 9, 10)
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (line, word) in [
            ("--users many", "many"),
            ("--users 0", "between 1 and"),
            ("--users", "missing"),
            ("--user 3", "--user"),
            ("help", "help"),
            ("serve x neither", "neither locked"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
