//! Faults of any server, and faults of Redis alone.

use std::ops::Range;
use std::time::{Duration, Instant};

use redis::Value;

use super::{Fault, Scene, Side, proven, until_struck};
use crate::site::Topology;

pub(super) fn all() -> Vec<Box<dyn Fault>> {
    vec![
        Box::new(Killed { run: String::new() }),
        Box::new(Frozen),
        Box::new(Forgets(Ok(String::new()))),
        Box::new(Disconnects {
            name: "client-kill",
            that_listen: false,
            closed: 0,
        }),
        Box::new(Forbids { denials: 0 }),
        Box::new(ClockJump::default()),
    ]
}

/// Returns the faults that can happen if clients listen.
pub(super) fn of_listeners() -> Vec<Box<dyn Fault>> {
    vec![Box::new(Disconnects {
        name: "subscriber-kill",
        that_listen: true,
        closed: 0,
    })]
}

/// Returns the faults that can happen to Redis alone.
pub(super) fn of_redis() -> Vec<Box<dyn Fault>> {
    vec![
        Box::new(Flushed { errors: 0 }),
        Box::new(Full { errors: 0 }),
    ]
}

/// SIGKILL, and a restart with what is on disk.
struct Killed {
    run: String,
}

impl Fault for Killed {
    fn name(&self) -> &'static str {
        "server-killed"
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn needs_disk(&self) -> bool {
        true
    }

    fn lasts(&self) -> Range<u64> {
        50..800
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        self.run = scene.server().run_id();
        scene.server().kill9();
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let was_down = !scene.server().answers(Duration::from_millis(50));
        scene.server().restart();
        let run = scene.server().run_id();
        proven(
            was_down && run != self.run,
            format!("down: {was_down}; run {} became {run}", self.run),
        )
    }
}

/// SIGSTOP and SIGCONT, for less than the lease or for more.
struct Frozen;

impl Fault for Frozen {
    fn name(&self) -> &'static str {
        "server-frozen"
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn lasts(&self) -> Range<u64> {
        200..1_500
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        scene.server().freeze();
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let was_silent = !scene.server().answers(Duration::from_millis(50));
        scene.server().thaw();
        proven(was_silent, format!("silent: {was_silent}"))
    }
}

/// The server's data are gone, so every lock is free at once. The field has the proof of that, or the doubt.
struct Forgets(Result<String, String>);

impl Fault for Forgets {
    fn name(&self) -> &'static str {
        "server-forgets"
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn loses_locks(&self, topology: Topology) -> bool {
        // A node of a quorum has no vote until every lease that it may have forgotten is over.
        topology != Topology::Quorum
    }

    fn forgets(&self) -> bool {
        true
    }

    fn lasts(&self) -> Range<u64> {
        1..50
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        self.0 = scene.server().forget();
    }

    fn end(&mut self, _scene: &mut Scene<'_>) -> Result<String, String> {
        self.0.clone()
    }
}

/// SCRIPT FLUSH, again and again.
struct Flushed {
    errors: u64,
}

impl Fault for Flushed {
    fn name(&self) -> &'static str {
        "script-flush"
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn lasts(&self) -> Range<u64> {
        100..600
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        self.errors = scene.node().errors("NOSCRIPT");
        flush(scene);
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        if scene.rng.u8(..4) == 0 {
            flush(scene);
        }
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        // Clients that are only just coming back to the node ask for their scripts later.
        let until = Instant::now() + Duration::from_secs(3);
        let mut met = 0;
        while met == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
            met = scene.node().errors("NOSCRIPT").saturating_sub(self.errors);
        }
        proven(met > 0, format!("{met} scripts were not found"))
    }
}

fn flush(scene: &mut Scene<'_>) {
    let _: Value = scene.node().server.query(&["SCRIPT", "FLUSH"]);
}

/// The server ends connections.
struct Disconnects {
    name: &'static str,
    that_listen: bool,
    closed: u64,
}

impl Fault for Disconnects {
    fn name(&self) -> &'static str {
        self.name
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn lasts(&self) -> Range<u64> {
        20..100
    }

    fn begin(&mut self, _scene: &mut Scene<'_>) {
        self.closed = 0;
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        if self.closed == 0 {
            self.closed = scene.server().end_connections(self.that_listen);
        }
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        // A node that was away has no subscribers yet.
        until_struck(self, scene, |fault| fault.closed > 0);
        proven(self.closed > 0, format!("{} closed", self.closed))
    }
}

/// No memory for anything new.
struct Full {
    errors: u64,
}

impl Fault for Full {
    fn name(&self) -> &'static str {
        "memory-full"
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn lasts(&self) -> Range<u64> {
        100..1_300
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        self.errors = scene.node().errors("OOM");
        let _: Value = scene
            .node()
            .server
            .query(&["CONFIG", "SET", "maxmemory", "1"]);
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let _: Value = scene
            .node()
            .server
            .query(&["CONFIG", "SET", "maxmemory", "0"]);
        let met = scene.node().errors("OOM").saturating_sub(self.errors);
        proven(met > 0, format!("{met} refused for memory"))
    }
}

/// The right to take locks is taken away, and given back.
struct Forbids {
    denials: u64,
}

impl Fault for Forbids {
    fn name(&self) -> &'static str {
        "rights-revoked"
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn denies(&self) -> bool {
        true
    }

    fn lasts(&self) -> Range<u64> {
        100..1_300
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        self.denials = scene.server().denials();
        scene.server().grant(false);
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        scene.server().grant(true);
        let met = scene.server().denials().saturating_sub(self.denials);
        proven(met > 0, format!("{met} refused for rights"))
    }
}

/// The server's clock jumps ahead. This is emulated: every lease ends earlier by that much.
#[derive(Default)]
struct ClockJump {
    shortened: u64,
    /// The number of these leases of which nothing was left.
    ended: u64,
}

/// The length of the jump. It is more than is left of most leases, which are renewed when a third is over.
const JUMP: Duration = Duration::from_millis(900);

impl Fault for ClockJump {
    fn name(&self) -> &'static str {
        "clock-jump"
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn loses_locks(&self, _topology: Topology) -> bool {
        true
    }

    fn jumps(&self) -> Option<Duration> {
        Some(JUMP)
    }

    fn lasts(&self) -> Range<u64> {
        50..200
    }

    fn begin(&mut self, _scene: &mut Scene<'_>) {
        (self.shortened, self.ended) = (0, 0);
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        if self.ended == 0 {
            let (shortened, ended) = scene.server().shorten_leases(JUMP);
            self.shortened += shortened;
            self.ended += ended;
        }
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        // All leases that it has met were renewed just before.
        until_struck(self, scene, |fault| fault.ended > 0);
        let (shortened, ended) = (self.shortened, self.ended);
        proven(
            ended > 0,
            format!("{shortened} leases cut by {JUMP:?}, {ended} of them ended"),
        )
    }
}
