//! Faults of the client processes.

use std::ops::Range;

use rustix::process::Signal;

use super::{Fault, Scene, Side, proven};

pub(super) fn all() -> Vec<Box<dyn Fault>> {
    vec![
        Box::new(Killed {
            victim: 0,
            left: Vec::new(),
        }),
        Box::new(Frozen { victim: 0 }),
    ]
}

/// SIGKILL of a process, whose place another process takes.
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
        // This returns when the process is gone.
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

/// SIGSTOP and SIGCONT, for less than the lease or for more.
struct Frozen {
    victim: usize,
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
        scene.crew.signal(self.victim, Signal::STOP);
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let was_stopped = scene.crew.is_stopped(self.victim);
        scene.crew.signal(self.victim, Signal::CONT);
        proven(
            was_stopped,
            format!("client {} stopped: {was_stopped}", self.victim),
        )
    }
}
