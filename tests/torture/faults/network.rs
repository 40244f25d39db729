//! Faults between clients and server, made by the proxy.

use std::ops::Range;
use std::time::{Duration, Instant};

use tests::faults::Op;
use tests::{Direction, Then};

use super::{Fault, Scene, Side, proven};
use crate::keys::Tasks;
use crate::site::Topology;
use crate::statements::{Statement, mysql, postgres};

pub(super) fn all() -> Vec<Box<dyn Fault>> {
    vec![
        Box::new(Cut {
            name: "cut",
            stays_down: false,
            before: 0,
        }),
        Box::new(Cut {
            name: "network-down",
            stays_down: true,
            before: 0,
        }),
        Box::new(Late),
        Box::new(OneWay {
            name: "requests-lost",
            lost: Direction::Requests,
            before: 0,
        }),
        Box::new(OneWay {
            name: "replies-lost",
            lost: Direction::Replies,
            before: 0,
        }),
        Box::new(Stalled),
        Box::new(HalfOpen { before: 0 }),
        Box::new(ReplyLost {
            set_at: None,
            lost: 0,
        }),
    ]
}

/// Returns the faults that can happen if there are messages.
pub(super) fn of_messages() -> Vec<Box<dyn Fault>> {
    vec![Box::new(MessagesLost { before: 0 })]
}

/// Every connection is cut, once, or with nobody let in again for a while.
struct Cut {
    name: &'static str,
    stays_down: bool,
    before: usize,
}

impl Fault for Cut {
    fn name(&self) -> &'static str {
        self.name
    }

    fn side(&self) -> Side {
        Side::Network
    }

    fn lasts(&self) -> Range<u64> {
        if self.stays_down { 50..1_300 } else { 20..100 }
    }

    fn begin(&mut self, _scene: &mut Scene<'_>) {
        self.before = 0;
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        // Together with another fault, there may be none to cut at first.
        if self.before == 0 {
            self.before = scene.proxy().open_connections();
            if self.before > 0 {
                scene.proxy().refuse(self.stays_down);
                scene.proxy().cut();
            }
        }
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        scene.proxy().refuse(false);
        proven(self.before > 0, format!("{} cut", self.before))
    }
}

/// Everything takes longer, both ways.
struct Late;

const LATE_BY: Duration = Duration::from_millis(60);

impl Fault for Late {
    fn name(&self) -> &'static str {
        "delay"
    }

    fn side(&self) -> Side {
        Side::Network
    }

    fn lasts(&self) -> Range<u64> {
        300..1_300
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        for way in [Direction::Requests, Direction::Replies] {
            scene.proxy().delay(way, LATE_BY);
        }
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let asked = Instant::now();
        // With a frozen server there is no answer at all, which is late, too.
        scene.server().answers_clients(LATE_BY * 4);
        let took = asked.elapsed();
        for way in [Direction::Requests, Direction::Replies] {
            scene.proxy().delay(way, Duration::ZERO);
        }
        proven(took >= LATE_BY * 2, format!("a PING took {took:.1?}"))
    }
}

/// One direction is a black hole; the other works.
struct OneWay {
    name: &'static str,
    lost: Direction,
    before: u64,
}

impl Fault for OneWay {
    fn name(&self) -> &'static str {
        self.name
    }

    fn side(&self) -> Side {
        Side::Network
    }

    fn lasts(&self) -> Range<u64> {
        200..1_300
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        self.before = scene.proxy().connections();
        scene.proxy().black_hole(self.lost, true);
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let was_silent = !scene.server().answers_clients(Duration::from_millis(50));
        scene.proxy().black_hole(self.lost, false);
        proven(was_silent, format!("silent: {was_silent}"))
    }
}

/// Requests are held back, and arrive late.
struct Stalled;

impl Fault for Stalled {
    fn name(&self) -> &'static str {
        "requests-late"
    }

    fn side(&self) -> Side {
        Side::Network
    }

    fn lasts(&self) -> Range<u64> {
        200..1_500
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        scene.proxy().stall(Direction::Requests, true);
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let was_silent = !scene.server().answers_clients(Duration::from_millis(50));
        scene.proxy().stall(Direction::Requests, false);
        proven(was_silent, format!("silent: {was_silent}"))
    }
}

/// The open connections are dead, and nobody is told. New ones work.
struct HalfOpen {
    before: usize,
}

impl Fault for HalfOpen {
    fn name(&self) -> &'static str {
        "half-open"
    }

    fn side(&self) -> Side {
        Side::Network
    }

    fn lasts(&self) -> Range<u64> {
        20..100
    }

    fn begin(&mut self, _scene: &mut Scene<'_>) {
        self.before = 0;
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        if self.before == 0 {
            self.before = scene.proxy().open_connections();
            scene.proxy().freeze_open_connections();
        }
    }

    fn end(&mut self, _scene: &mut Scene<'_>) -> Result<String, String> {
        proven(self.before > 0, format!("{} went deaf", self.before))
    }
}

/// The server does what it is asked, and the answer is lost, for one kind of script after the other.
struct ReplyLost {
    /// The time at which the trap was set that has not sprung yet.
    set_at: Option<Instant>,
    lost: u64,
}

/// A request that nobody makes for so long is not waited for: the trap then takes the next one of any kind.
const PATIENCE: Duration = Duration::from_millis(200);

impl ReplyLost {
    fn collect(&mut self, scene: &mut Scene<'_>) {
        if self.set_at.is_some() && scene.proxy().trap_sprung() {
            self.lost += 1;
            self.set_at = None;
        }
    }
}

impl Fault for ReplyLost {
    fn name(&self) -> &'static str {
        "reply-lost"
    }

    fn side(&self) -> Side {
        Side::Network
    }

    fn lasts(&self) -> Range<u64> {
        600..1_500
    }

    fn begin(&mut self, _scene: &mut Scene<'_>) {
        (self.set_at, self.lost) = (None, 0);
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        self.collect(scene);
        if self.set_at.is_some_and(|at| at.elapsed() < PATIENCE) {
            return;
        }
        let any = self.set_at.replace(Instant::now()).is_some();
        let then = [Then::Cut, Then::Silence][scene.rng.usize(..2)];
        match scene.site.workload.topology {
            Topology::Postgres => lose_reply_to_statement(&ON_POSTGRES, any, scene, then),
            Topology::Mysql => lose_reply_to_statement(&ON_MYSQL, any, scene, then),
            Topology::Quorum => {
                // The scripts of a quorum have no fence, and nothing else tells them apart.
                let is_script = |args: &[&[u8]]| args.first() == Some(&&b"EVALSHA"[..]);
                scene.proxy().lose_reply_to(is_script, then);
            }
            _ if scene.site.workload.tasks == Tasks::Mutexes => {
                // The client may be that of another library.
                let writes = |args: &[&[u8]]| {
                    let writing: [&[u8]; 3] = [b"EVALSHA", b"EVAL", b"SET"];
                    let name = args.first().map(|name| name.to_ascii_uppercase());
                    name.is_some_and(|name| writing.contains(&&name[..]))
                };
                scene.proxy().lose_reply_to(writes, then);
            }
            _ => {
                const OPS: [Op; 7] = [
                    Op::Acquire,
                    Op::ListedAcquire,
                    Op::Release,
                    Op::ListedRelease,
                    Op::HandOver,
                    Op::FairAcquire,
                    Op::Renew,
                ];
                let ops = one_or_all(&OPS, any, scene);
                let is_one = move |args: &[&[u8]]| ops.iter().any(|op| op.is(args));
                scene.proxy().lose_reply_to(is_one, then);
            }
        }
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        self.collect(scene);
        scene.proxy().lose_reply_to(|_| false, Then::Cut);
        proven(self.lost > 0, format!("{} replies lost", self.lost))
    }
}

/// The statements whose answers a caller waits for.
macro_rules! waited_for {
    ($of:ident) => {
        [
            $of!("acquire"),
            $of!("acquire_all"),
            $of!("acquire_permits"),
            $of!("hand_over"),
            $of!("queue_up"),
            $of!("release"),
            $of!("renew"),
            $of!("take_turn"),
        ]
    };
}
const ON_POSTGRES: [Statement; 8] = waited_for!(postgres);
const ON_MYSQL: [Statement; 8] = waited_for!(mysql);

/// All of them, or one by chance.
fn one_or_all<T: Copy>(of: &[T], all: bool, scene: &mut Scene<'_>) -> Vec<T> {
    match all {
        true => of.to_vec(),
        false => vec![of[scene.rng.usize(..of.len())]],
    }
}

fn lose_reply_to_statement(of: &[Statement], any: bool, scene: &mut Scene<'_>, then: Then) {
    let of = if scene.broken.is_empty() {
        of.to_vec()
    } else {
        scene.broken.clone()
    };
    let statements = one_or_all(&of, any, scene);
    let is_one = move |words: &[&[u8]]| {
        let text = words.get(1).and_then(|text| std::str::from_utf8(text).ok());
        text.is_some_and(|text| statements.iter().any(|it| it.as_sent(text).is_some()))
    };
    scene.proxy().lose_reply_to(is_one, then);
}

/// Wake-ups get lost. Everything else works.
struct MessagesLost {
    before: u64,
}

impl Fault for MessagesLost {
    fn name(&self) -> &'static str {
        "messages-lost"
    }

    fn side(&self) -> Side {
        Side::Network
    }

    fn lasts(&self) -> Range<u64> {
        800..2_000
    }

    fn loses_messages(&self) -> bool {
        true
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        self.before = scene.proxy().messages();
        scene.proxy().lose_messages(true);
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        scene.proxy().lose_messages(false);
        let lost = scene.proxy().messages() - self.before;
        proven(lost > 0, format!("{lost} messages lost"))
    }
}
