//! The client processes of a round.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tests::Worker;
use tests::judge::Log;
use tests::judge::names::client_name;

use crate::keys::Workload;
use crate::peers::Driver;
use tests::planted::CHOSEN;

const STOP: Duration = Duration::from_secs(20);

struct Member {
    name: String,
    worker: Worker,
    holds: u64,
    stopped: bool,
    gone: bool,
}

impl Member {
    fn says(&mut self, line: &str, log: &mut Log) {
        match line {
            "ready" => {}
            "stopped" => self.stopped = true,
            line => {
                self.holds += u64::from(line.starts_with("hold ") || line.starts_with("share "));
                log.note(line);
            }
        }
    }
}

/// The settings with which the clients of a round are started.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) workload: Workload,
    /// The URL of each place.
    pub(crate) urls: Vec<String>,
    pub(crate) resource: String,
    pub(crate) seed: u64,
    pub(crate) checked: bool,
    /// The clients' program.
    pub(crate) program: PathBuf,
    /// The bug that is to be there, of those that were built into the program.
    pub(crate) bug: Option<&'static str>,
    /// The library that the clients use, if it is not ours.
    pub(crate) peer: Option<Driver>,
}

impl Job {
    /// Returns the command that starts a client.
    fn command(&self, place: usize, number: usize, seed: &str) -> Command {
        let (url, resource) = (&self.urls[place], &self.resource);
        if let Some(driver) = &self.peer {
            return driver.command(self.workload, url, resource, number, seed);
        }
        let checks = if self.checked { "checked" } else { "unchecked" };
        let mut command = Command::new(&self.program);
        command.args([
            "client",
            self.workload.topology.name(),
            self.workload.tasks.name(),
            url,
            resource,
            &number.to_string(),
            seed,
            checks,
        ]);
        if let Some(bug) = self.bug {
            command.env(CHOSEN, bug);
        }
        command
    }
}

/// The clients, and what they have said so far.
pub(crate) struct Crew {
    job: Job,
    started: usize,
    members: Vec<Member>,
    pub(crate) log: Log,
}

impl Crew {
    /// Starts a client in each place and waits until all are connected.
    pub(crate) fn start(job: Job) -> Self {
        let size = job.urls.len();
        let mut crew = Self {
            job,
            started: 0,
            members: Vec::new(),
            log: Log::default(),
        };
        crew.members = (0..size).map(|place| crew.recruit(place)).collect();
        for member in &crew.members {
            member.worker.expect_line("ready");
        }
        crew
    }

    fn recruit(&mut self, place: usize) -> Member {
        let number = self.started;
        self.started += 1;
        let seed = self.job.seed.wrapping_add(1_000 * number as u64);
        let worker = Worker::spawn(&mut self.job.command(place, number, &seed.to_string()));
        Member {
            name: client_name(number),
            worker,
            holds: 0,
            stopped: false,
            gone: false,
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// Returns the names of the clients.
    pub(crate) fn clients(&self) -> Vec<&str> {
        self.members.iter().map(|it| &*it.name).collect()
    }

    /// Takes in what was said since the last time.
    pub(crate) fn listen(&mut self) {
        for member in &mut self.members {
            while let Some(line) = member.worker.try_line() {
                member.says(&line, &mut self.log);
            }
        }
    }

    /// Returns how many holds one client has had so far.
    pub(crate) fn holds(&self, client: usize) -> u64 {
        self.members[client].holds
    }

    /// Kills a client as a crash would, and takes in all that it had said.
    pub(crate) fn kill(&mut self, client: usize) {
        let member = &mut self.members[client];
        member.worker.kill9();
        member.gone = true;
        self.log.killed.push(member.name.clone());
        while let Some(line) = member.worker.line() {
            member.says(&line, &mut self.log);
        }
    }

    /// Starts another client in the place of one that was killed. It is at work once it is connected.
    pub(crate) fn replace(&mut self, client: usize) {
        self.members[client] = self.recruit(client);
    }

    /// Freezes or thaws a client.
    pub(crate) fn signal(&self, client: usize, signal: Signal) {
        self.members[client].worker.signal(signal);
    }

    /// Returns whether the operating system runs nothing of it: state `T`, after the name in parentheses.
    pub(crate) fn is_stopped(&self, client: usize) -> bool {
        let pid = self.members[client].worker.pid();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" T"))
    }

    /// Returns whether a client ended that was not killed, which means that it panicked.
    pub(crate) fn has_deserter(&mut self) -> bool {
        let mut members = self.members.iter_mut();
        members.any(|member| !member.gone && !member.stopped && member.worker.has_ended())
    }

    /// Lets every client finish. Returns false if one did not.
    pub(crate) fn stop(&mut self) -> bool {
        if self.has_deserter() {
            return false;
        }
        for member in self.members.iter_mut().filter(|member| !member.gone) {
            // It may have died since it was looked at.
            if member.worker.try_tell("stop").is_err() {
                return false;
            }
        }
        let deadline = Instant::now() + STOP;
        loop {
            self.listen();
            let mut members = self.members.iter();
            if members.all(|member| member.gone || member.stopped) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
