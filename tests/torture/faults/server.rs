//! Faults of the server.

use std::ops::Range;
use std::time::{Duration, Instant};

use redis::Value;
use tests::Data;

use super::{Fault, Scene, Side, proven};
use crate::site::{Topology, answers};

pub(super) fn all() -> Vec<Box<dyn Fault>> {
    vec![
        Box::new(Killed { run: String::new() }),
        Box::new(Frozen),
        Box::new(Forgets { run: String::new() }),
        Box::new(Flushed { errors: 0 }),
        Box::new(Disconnects {
            name: "client-kill",
            kind: "normal",
            closed: 0,
        }),
        Box::new(Disconnects {
            name: "subscriber-kill",
            kind: "pubsub",
            closed: 0,
        }),
        Box::new(Full { errors: 0 }),
        Box::new(Forbids { errors: 0 }),
        Box::new(ClockJump::default()),
    ]
}

/// SIGKILL, and back with the data of its append-only file.
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
        self.run = scene.node().run_id();
        scene.node().server.kill9();
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let was_down = !answers(scene.node().server.addr(), Duration::from_millis(50));
        scene.node().server.restart(Data::Kept);
        let run = scene.node().run_id();
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
        scene.node().server.sigstop();
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let was_silent = !answers(scene.node().server.addr(), Duration::from_millis(50));
        scene.node().server.sigcont();
        proven(was_silent, format!("silent: {was_silent}"))
    }
}

/// A restart without data: every lock is free at once.
struct Forgets {
    run: String,
}

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
        self.run = scene.node().run_id();
        scene.node().server.restart(Data::Lost);
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let run = scene.node().run_id();
        proven(
            run != self.run,
            format!("empty; run {} became {run}", self.run),
        )
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
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        if scene.rng.u8(..4) == 0 {
            let _: Value = scene.node().server.query(&["SCRIPT", "FLUSH"]);
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

/// CLIENT KILL by type.
struct Disconnects {
    name: &'static str,
    kind: &'static str,
    closed: i64,
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
            let kill = ["CLIENT", "KILL", "TYPE", self.kind, "SKIPME", "yes"];
            self.closed = scene.node().server.query(&kill);
        }
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        // A node that was away has no subscribers yet.
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.closed == 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            self.tick(scene);
        }
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

/// The right to run scripts is taken away, and given back.
struct Forbids {
    errors: u64,
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
        self.errors = scene.node().errors("NOPERM");
        let _: Value = scene
            .node()
            .server
            .query(&["ACL", "SETUSER", "default", "-evalsha"]);
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let _: Value = scene
            .node()
            .server
            .query(&["ACL", "SETUSER", "default", "+evalsha"]);
        let met = scene.node().errors("NOPERM").saturating_sub(self.errors);
        proven(met > 0, format!("{met} refused for rights"))
    }
}

/// The server's clock jumps ahead: emulated, every lease ends so much earlier.
#[derive(Default)]
struct ClockJump {
    shortened: i64,
    /// Of these: leases of which nothing was left.
    ended: i64,
}

/// How far the clock jumps: more than is left of most leases, which are renewed when a third is over.
const JUMP: Duration = Duration::from_millis(900);

const SHORTEN: &str = "
local shortened, ended = 0, 0
for _, key in ipairs(redis.call('KEYS', 'lock:*')) do
  local left = redis.call('PTTL', key)
  if left > 0 then
    shortened = shortened + 1
    if left <= tonumber(ARGV[1]) then
      redis.call('DEL', key)
      ended = ended + 1
    else
      redis.call('PEXPIRE', key, left - ARGV[1])
    end
  end
end
return {shortened, ended}";

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
            let by = JUMP.as_millis().to_string();
            let (shortened, ended): (i64, i64) =
                scene.node().server.query(&["EVAL", SHORTEN, "0", &by]);
            self.shortened += shortened;
            self.ended += ended;
        }
    }

    fn end(&mut self, _scene: &mut Scene<'_>) -> Result<String, String> {
        let (shortened, ended) = (self.shortened, self.ended);
        proven(
            ended > 0,
            format!("{shortened} leases cut by {JUMP:?}, {ended} of them ended"),
        )
    }
}
