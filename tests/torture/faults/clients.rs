//! Faults of the client processes.

use std::ops::Range;

use rustix::process::Signal;

use super::{Fault, Scene, Side, proven};

pub(super) fn all() -> Vec<Box<dyn Fault>> {
    vec![
        Box::new(Killed { victim: 0 }),
        Box::new(Frozen {
            victim: 0,
            said: None,
        }),
    ]
}

/// SIGKILL; another process takes its place.
struct Killed {
    victim: usize,
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
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        scene.crew.replace(self.victim);
        Ok(format!("client {} killed", self.victim))
    }
}

/// SIGSTOP and SIGCONT, for less than the lease or for more.
struct Frozen {
    victim: usize,
    said: Option<u64>,
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
        self.said = None;
        scene.crew.signal(self.victim, Signal::STOP);
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        // The second tick: what it had said before is in by now.
        let holds = scene.crew.holds(self.victim);
        self.said = Some(self.said.map_or(u64::MAX, |said| said.min(holds)));
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        scene.crew.listen();
        let was_silent = self.said == Some(scene.crew.holds(self.victim));
        scene.crew.signal(self.victim, Signal::CONT);
        proven(
            was_silent,
            format!("client {} silent: {was_silent}", self.victim),
        )
    }
}
