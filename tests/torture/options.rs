//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::site::Topology;

/// The options of a run.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) time: Option<Duration>,
    pub(crate) seed: u64,
    pub(crate) round: Option<u64>,
    pub(crate) fault: Option<String>,
    pub(crate) topologies: Vec<Topology>,
    pub(crate) planted: bool,
    /// Whether to print only the names of planted bugs, after a check that what they change is there.
    pub(crate) list: bool,
    /// Whether to print only the tables of docs/evidence.md.
    pub(crate) tables: bool,
    /// The number of planted bugs to try. The seed chooses them.
    pub(crate) some: Option<u64>,
    /// The only planted bug to try.
    pub(crate) bug: Option<String>,
    pub(crate) report: Option<PathBuf>,
    /// The folder of the drivers of other libraries.
    pub(crate) peers: Option<PathBuf>,
    /// The only library to try.
    pub(crate) peer: Option<String>,
    /// The folder for histories that another judge reads.
    pub(crate) histories: Option<PathBuf>,
}

impl Options {
    /// Returns whether this is the one short pass over everything, which has to end soon.
    pub(crate) fn is_short(&self) -> bool {
        let asked = self.round.is_some() || self.fault.is_some();
        self.time.is_none() && !asked && self.topologies.len() > 1
    }

    pub(crate) fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            time: None,
            seed: fastrand::u64(..1_000_000_000),
            round: None,
            fault: None,
            topologies: Topology::ALL.to_vec(),
            planted: false,
            list: false,
            tables: false,
            some: None,
            bug: None,
            report: None,
            peers: None,
            peer: None,
            histories: None,
        };
        let mut words = words.iter();
        while let Some(flag) = words.next() {
            match *flag {
                "--planted-bugs" => {
                    options.planted = true;
                    continue;
                }
                "--tables" => {
                    options.tables = true;
                    continue;
                }
                "--list" => {
                    (options.planted, options.list) = (true, true);
                    continue;
                }
                _ => {}
            }
            let value = *words
                .next()
                .ok_or(format!("`{flag}` is unknown or needs a value"))?;
            let number = || {
                value
                    .parse::<f64>()
                    .map_err(|error| format!("{flag} {value}: {error}"))
            };
            let whole = || {
                value
                    .parse::<u64>()
                    .map_err(|error| format!("{flag} {value}: {error}"))
            };
            match *flag {
                "--minutes" => {
                    options.time = Some(Duration::from_secs_f64(number()?.max(0.0) * 60.0))
                }
                "--seed" => options.seed = whole()?,
                "--round" => options.round = Some(whole()?),
                "--topology" => {
                    let one = Topology::named(value).ok_or(format!("`{value}` is no topology"))?;
                    options.topologies = vec![one];
                }
                "--fault" => options.fault = Some(value.to_owned()),
                "--some" => (options.planted, options.some) = (true, Some(whole()?)),
                "--bug" => (options.planted, options.bug) = (true, Some(value.to_owned())),
                "--report" => options.report = Some(value.into()),
                "--peers" => options.peers = Some(value.into()),
                "--peer" => options.peer = Some(value.to_owned()),
                "--histories" => options.histories = Some(value.into()),
                _ => return Err(format!("`{flag}` is unknown")),
            }
        }
        Ok(options)
    }
}
