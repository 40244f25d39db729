//! The baseline of several processes at one key: the library's own scripts of the waiting list, called over one blocking
//! socket, with nothing around them. It believes every message, renews nothing, and stops at the first surprise.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redis::{Cmd, Parser, PushKind, RedisResult, Value};
use tests::history::now_ns;

use crate::processes::Grant;
use crate::scripts::whole;

const LOCK: &str = "lock:hot";
const WAITING: &str = "lock:waiting:{lock:hot}";
const FENCE: &str = "lock:fence:{1}";
const CHANNEL: &str = "redisson_lock__channel:{lock:hot}";

/// The time after which a waiter asks again.
const NAP: Duration = Duration::from_millis(1_200);

pub(crate) struct BareList {
    stream: TcpStream,
    parser: Parser,
    acquire: String,
    release: String,
    run_id: String,
    /// The first part is the name of the process's own channel.
    client: String,
    acquired: u64,
}

impl BareList {
    pub(crate) fn connect(url: &str) -> BareList {
        let address = url.trim_start_matches("redis://").trim_end_matches('/');
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut bare = BareList {
            stream,
            parser: Parser::new(),
            acquire: String::new(),
            release: String::new(),
            run_id: String::new(),
            client: format!("{:08x}-0000-8000-8000-000000000000", fastrand::u32(..)),
            acquired: 0,
        };
        bare.ask(redis::cmd("HELLO").arg(3));
        let info = bare.ask(redis::cmd("INFO").arg("server"));
        let info: redis::InfoDict = redis::from_redis_value(info).unwrap();
        bare.run_id = info.get("run_id").unwrap();
        let mut load = |name| {
            let hash = bare.ask(redis::cmd("SCRIPT").arg("LOAD").arg(whole(name)));
            redis::from_redis_value(hash).unwrap()
        };
        (bare.acquire, bare.release) = (load("listed_acquire"), load("listed_release"));
        let own = format!("{CHANNEL}:{}", &bare.client[..8]);
        let ours = format!("{CHANNEL}:ours");
        let channels = [CHANNEL, &own, &ours];
        bare.send(redis::cmd("SUBSCRIBE").arg(&channels));
        for _ in channels {
            let confirmed = bare.receive().unwrap();
            assert!(matches!(confirmed, Value::Push { .. }), "{confirmed:?}");
        }
        bare
    }

    fn send(&mut self, command: &Cmd) {
        let packed = command.get_packed_command();
        self.stream.write_all(&packed).unwrap();
    }

    fn receive(&mut self) -> RedisResult<Value> {
        self.parser.parse_value(&mut self.stream)
    }

    /// Sends a command and returns its answer. Messages before the answer are of no use: they came to a holder of before.
    fn ask(&mut self, command: &Cmd) -> Value {
        self.send(command);
        loop {
            match self.receive().unwrap() {
                Value::Push { .. } => {}
                answer => return answer,
            }
        }
    }

    /// Acquires the lock, keeps it, and releases it again and again. Returns the grants.
    pub(crate) fn take_turns(&mut self, hold: Duration, over: Instant) -> Vec<Grant> {
        let mut grants = Vec::new();
        while Instant::now() < over {
            let asked = now_ns();
            self.acquired += 1;
            let holder = format!("{}:{}", self.client, self.acquired);
            while !self.try_acquire(&holder) {
                if self.hears_of_its_turn() {
                    break;
                }
            }
            let at = now_ns();
            grants.push((at, at - asked));
            if !hold.is_zero() {
                std::thread::sleep(hold);
            }
            self.give_back(&holder);
        }
        grants
    }

    fn try_acquire(&mut self, holder: &str) -> bool {
        let mut acquire = Cmd::with_capacity(10, 512);
        acquire.arg("EVALSHA").arg(&self.acquire).arg(3);
        acquire.arg(LOCK).arg(WAITING).arg(FENCE);
        acquire.arg(holder).arg(30_000).arg("9007199254740991");
        acquire.arg(0).arg(CHANNEL);
        let answer = self.ask(&acquire);
        match &answer {
            Value::BulkString(_) => true,
            Value::Array(parts) => match parts.first() {
                Some(Value::BulkString(word)) => word == b"OK",
                _ => panic!("{answer:?}"),
            },
            _ => panic!("{answer:?}"),
        }
    }

    /// Waits for the message that the lock is reserved for this process. Returns `false` if it has to ask.
    fn hears_of_its_turn(&mut self) -> bool {
        self.stream.set_read_timeout(Some(NAP)).unwrap();
        let heard = self.receive();
        self.stream.set_read_timeout(None).unwrap();
        match heard {
            Ok(Value::Push {
                kind: PushKind::Message,
                data,
            }) => matches!(data.last(), Some(Value::BulkString(payload)) if payload.len() > 32),
            Err(error) if error.is_timeout() => false,
            other => panic!("{other:?}"),
        }
    }

    fn give_back(&mut self, holder: &str) {
        let mut release = Cmd::with_capacity(12, 512);
        release.arg("EVALSHA").arg(&self.release).arg(3);
        release.arg(LOCK).arg(WAITING).arg(FENCE);
        release.arg(holder).arg(CHANNEL).arg(100);
        release.arg(&self.run_id).arg("").arg(0);
        let answer = self.ask(&release);
        assert!(matches!(answer, Value::Int(1..)), "{answer:?}");
    }
}
