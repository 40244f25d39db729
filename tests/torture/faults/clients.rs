//! Faults of the client processes.

use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Fault, Scene, Side, proven};

pub(super) fn all() -> Vec<Box<dyn Fault>> {
    vec![
        Box::new(Killed {
            victim: 0,
            left: Vec::new(),
        }),
        Box::new(Frozen {
            victim: 0,
            said: 0,
            since: None,
        }),
    ]
}

/// SIGKILL; another process takes its place.
struct Killed {
    victim: usize,
    left: Vec<(&'static str, u64)>,
}

impl Fault for Killed {
    fn name(&self) -> &'static str {
        "process-killed"
    }

    fn side(&self) -> Side {
        Side::Clients
    }

    fn lasts(&self) -> Range<u64> {
        1..10
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        self.victim = scene.rng.usize(..scene.crew.size());
        // Returns when the process is gone.
        scene.crew.kill(self.victim);
        self.left = scene.site.leases();
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        scene.crew.replace(self.victim);
        Ok(format!("client {} killed", self.victim))
    }

    fn left_behind(&self) -> Vec<(&'static str, u64)> {
        self.left.clone()
    }
}

const ECHO: Duration = Duration::from_millis(150);

/// SIGSTOP and SIGCONT, for less than the lease or for more.
struct Frozen {
    victim: usize,
    said: u64,
    since: Option<Instant>,
}

impl Fault for Frozen {
    fn name(&self) -> &'static str {
        "process-frozen"
    }

    fn side(&self) -> Side {
        Side::Clients
    }

    fn lasts(&self) -> Range<u64> {
        300..2_000
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        self.victim = scene.rng.usize(..scene.crew.size());
        self.since = Some(Instant::now());
        scene.crew.signal(self.victim, Signal::STOP);
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        // What it had said before is still on its way for a while.
        if self.since.is_some_and(|since| since.elapsed() < ECHO) {
            self.said = scene.crew.holds(self.victim);
        }
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        scene.crew.listen();
        let was_silent = self.said == scene.crew.holds(self.victim);
        scene.crew.signal(self.victim, Signal::CONT);
        proven(
            was_silent,
            format!("client {} silent: {was_silent}", self.victim),
        )
    }
}
