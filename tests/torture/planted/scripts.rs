//! Bugs in what a Redis server does.
//!
//! Client and server are the real ones. The proxy replaces the text of a script on its way. The broken version is
//! wrapped around the true one, so it goes on fitting when the scripts are rewritten.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::{Broken, Planted};
use crate::keys::Tasks;
use crate::site::Site;

/// A script that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Script {
    Acquire,
    ListedAcquire,
    ListedRelease,
    Release,
    ReleaseEach,
    FairAcquire,
    FairRelease,
    Renew,
    ReadRenew,
    RenewPermits,
    HandOver,
    WriteAcquire,
    ReadWriteRelease,
    AcquirePermits,
    ReleasePermits,
}

impl Script {
    /// Returns the end of its text, after the fragments that scripts share.
    fn file(self) -> &'static str {
        match self {
            Self::Acquire => {
                include_str!("../../../lock-runtime/src/backend/redis/scripting/lua/acquire.lua")
            }
            Self::ListedAcquire => {
                include_str!(
                    "../../../lock-runtime/src/backend/redis/scripting/lua/listed_acquire.lua"
                )
            }
            Self::ListedRelease => {
                include_str!(
                    "../../../lock-runtime/src/backend/redis/scripting/lua/listed_release.lua"
                )
            }
            Self::Release => {
                include_str!("../../../lock-runtime/src/backend/redis/scripting/lua/release.lua")
            }
            Self::ReleaseEach => {
                include_str!(
                    "../../../lock-runtime/src/backend/redis/scripting/lua/release_each.lua"
                )
            }
            Self::FairAcquire => {
                include_str!(
                    "../../../lock-runtime/src/backend/redis/scripting/lua/fair_acquire.lua"
                )
            }
            Self::FairRelease => {
                include_str!(
                    "../../../lock-runtime/src/backend/redis/scripting/lua/fair_release.lua"
                )
            }
            Self::Renew => {
                include_str!("../../../lock-runtime/src/backend/redis/scripting/lua/renew.lua")
            }
            Self::ReadRenew => {
                include_str!("../../../lock-runtime/src/backend/redis/scripting/lua/read_renew.lua")
            }
            Self::RenewPermits => {
                include_str!(
                    "../../../lock-runtime/src/backend/redis/scripting/lua/renew_permits.lua"
                )
            }
            Self::WriteAcquire => {
                include_str!(
                    "../../../lock-runtime/src/backend/redis/scripting/lua/write_acquire.lua"
                )
            }
            Self::ReadWriteRelease => {
                include_str!(
                    "../../../lock-runtime/src/backend/redis/scripting/lua/read_write_release.lua"
                )
            }
            Self::ReleasePermits => {
                include_str!(
                    "../../../lock-runtime/src/backend/redis/scripting/lua/release_permits.lua"
                )
            }
            Self::AcquirePermits => {
                include_str!(
                    "../../../lock-runtime/src/backend/redis/scripting/lua/acquire_permits.lua"
                )
            }
            Self::HandOver => {
                include_str!("../../../lock-runtime/src/backend/redis/scripting/lua/handover.lua")
            }
        }
    }

    /// Returns the true script with Lua around it: `before` may replace what `server.call` does (as `call`), and
    /// `after` may change its answer `r`.
    fn broken(self, text: &str, before: &str, after: &str) -> String {
        // The shebang, if there is one, has to stay the first line.
        let (head, body) = match text.split_once('\n') {
            Some((head, body)) if head.starts_with("#!") => (head, body),
            _ => ("", text),
        };
        format!(
            "{head}\nlocal server = redis\n\
             local function call(send, command, ...) return send(command, ...) end\n{before}\n\
             local redis = {{}}\nfor name, value in pairs(server) do redis[name] = value end\n\
             redis.call = function(...) return call(server.call, ...) end\n\
             redis.pcall = function(...) return call(server.pcall, ...) end\n\
             local r = (function()\n{body}\nend)()\n\
             -- A shortcut's grant, in full.\n\
             if type(r) == 'string' then r = {{'OK', KEYS[2] and r or '', r}} end\n{after}\nreturn r\n"
        )
    }
}

/// A script, the text before its true text, and the text after it.
pub(crate) type Twist = (Script, &'static str, &'static str);

/// The definition of `call` for commands of these names.
macro_rules! instead_of {
    ($($command:literal, $does:literal);+) => {
        concat!(
            "call = function(send, command, ...)\n",
            $("  if command == '", $command, "' then ", $does, " end\n",)+
            "  return send(command, ...)\nend"
        )
    };
}

/// All bugs of scripts, and one of the register.
pub(super) const ALL: &[Planted] = &[
    Planted {
        name: "an acquire that ignores the holder",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Scripts(&[(Script::Acquire, instead_of!("HLEN", "return 0"), "")]),
    },
    Planted {
        name: "an acquire on the list that ignores the holder",
        tasks: Tasks::Hot,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Scripts(&[(
            Script::ListedAcquire,
            instead_of!("HGET", "return '1'"; "HEXISTS", "return 1"; "HGETALL", "return {ARGV[1], '1'}"),
            "",
        )]),
    },
    Planted {
        name: "a reservation of which nobody hears",
        tasks: Tasks::Hot,
        faults: &[],
        caught_by: &["change"],
        // As if it was heard. All other messages are sent: the channel of a process has a longer name.
        broken: Broken::Scripts(&[(
            Script::ListedRelease,
            instead_of!("PUBLISH", "if (...) ~= ARGV[2] then return 1 end"),
            "",
        )]),
    },
    Planted {
        name: "a reservation that is not written",
        tasks: Tasks::All,
        faults: &[],
        // A caller that asks after the message gets the lock. A caller that takes the message for the grant has no lock in
        // the store.
        caught_by: &["overlap", "needless-loss"],
        broken: Broken::Scripts(&[(Script::ListedRelease, instead_of!("HSET", "return 1"), "")]),
    },
    Planted {
        name: "a refusal that is taken for a grant",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Scripts(&[(
            Script::Acquire,
            "",
            "if r[1] == 'BUSY' and KEYS[2] and math.random(8) == 1 then r = {'OK', r[3], r[3]} end",
        )]),
    },
    Planted {
        name: "a release without the holder check",
        tasks: Tasks::All,
        // Releases that are repeated because their answer was lost find the next holder.
        faults: &["reply-lost"],
        caught_by: &["overlap"],
        broken: Broken::Scripts(&[(
            Script::Release,
            instead_of!("HDEL", "return send('DEL', KEYS[1])"),
            "",
        )]),
    },
    Planted {
        name: "a release that releases nothing",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["leftover", "order"],
        broken: Broken::Scripts(&[(Script::Release, instead_of!("HDEL", "return 1"), "")]),
    },
    Planted {
        name: "a release that wakes nobody",
        tasks: Tasks::All,
        faults: &[],
        // Callers that want a lock that another process keeps send messages all the same.
        caught_by: &["wake-ups", "gap"],
        broken: Broken::Scripts(&[
            (Script::Release, instead_of!("PUBLISH", "return 0"), ""),
            (Script::ReleaseEach, instead_of!("PUBLISH", "return 0"), ""),
            (Script::FairAcquire, instead_of!("PUBLISH", "return 0"), ""),
            (Script::FairRelease, instead_of!("PUBLISH", "return 0"), ""),
            (
                Script::ReadWriteRelease,
                instead_of!("PUBLISH", "return 0"),
                "",
            ),
            (
                Script::ReleasePermits,
                instead_of!("PUBLISH", "return 0"),
                "",
            ),
            (
                Script::AcquirePermits,
                instead_of!("PUBLISH", "return 0"),
                "",
            ),
        ]),
    },
    Planted {
        name: "a release that answers with a loss",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["needless-loss"],
        broken: Broken::Scripts(&[(Script::Release, "", "if r == 1 then r = {0, '0'} end")]),
    },
    Planted {
        name: "a hand-over that forgets the successor",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Scripts(&[(Script::HandOver, instead_of!("HSET", "return 1"), "")]),
    },
    Planted {
        name: "a lease that is shorter than agreed",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap", "needless-loss"],
        broken: Broken::Scripts(&[(
            Script::Acquire,
            instead_of!(
                "PEXPIRE",
                "local key, ms = ...; return send(command, key, math.floor(ms / 5))"
            ),
            "",
        )]),
    },
    Planted {
        name: "a lock without a lease",
        tasks: Tasks::All,
        faults: &["process-killed"],
        caught_by: &["recovery", "leftover"],
        broken: Broken::Scripts(&[
            (Script::Acquire, instead_of!("PEXPIRE", "return 1"), ""),
            (
                Script::HandOver,
                instead_of!("PEXPIRE", "return send('PERSIST', KEYS[1])"),
                "",
            ),
            (Script::Renew, instead_of!("PEXPIRE", "return 1"), ""),
        ]),
    },
    Planted {
        name: "a renewal that extends nothing",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap", "needless-loss"],
        broken: Broken::Scripts(&[(Script::Renew, instead_of!("PEXPIRE", "return 1"), "")]),
    },
    Planted {
        name: "a renewal of reads that extends nothing",
        tasks: Tasks::ReadWrite,
        faults: &[],
        caught_by: &["overlap"],
        // As if the hold was there still. Otherwise, the next renewal would tell the reader.
        broken: Broken::Scripts(&[(
            Script::ReadRenew,
            instead_of!("HEXISTS", "return 1"; "PTTL", "return 1"; "PEXPIRE", "return 1"),
            "",
        )]),
    },
    Planted {
        name: "a renewal of permits that extends nothing",
        tasks: Tasks::Permits,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Scripts(&[(
            Script::RenewPermits,
            instead_of!("ZSCORE", "return '9000000000000'"; "ZADD", "return 1"),
            "",
        )]),
    },
    Planted {
        name: "a renewal without the holder check",
        tasks: Tasks::All,
        faults: &["server-forgets"],
        caught_by: &["overlap"],
        broken: Broken::Scripts(&[(Script::Renew, instead_of!("HEXISTS", "return 1"), "")]),
    },
    Planted {
        name: "a renewal that re-creates",
        tasks: Tasks::All,
        faults: &["server-forgets"],
        caught_by: &["overlap", "errors"],
        broken: Broken::Scripts(&[(
            Script::Renew,
            instead_of!(
                "HEXISTS",
                "local key, holder = ...; send('HSET', key, holder, 1); return 1"
            ),
            "",
        )]),
    },
    Planted {
        name: "a token that repeats",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["token"],
        broken: Broken::Scripts(&[
            (
                Script::Acquire,
                "",
                "if r[1] == 'OK' and r[2] ~= '' then r[2] = string.sub(r[2], 1, -6) .. '00000' end",
            ),
            (
                Script::HandOver,
                "",
                "if r[1] == 'OK' and r[2] ~= '' then r[2] = string.sub(r[2], 1, -6) .. '00000' end",
            ),
        ]),
    },
    Planted {
        name: "a token that falls",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["token"],
        broken: Broken::Scripts(&[(
            Script::Acquire,
            "",
            "if r[1] == 'OK' and r[2] ~= '' then r[2] = string.format('%.0f', 9000000000000000 - tonumber(r[2])) end",
        )]),
    },
    Planted {
        name: "a writer that minds nobody",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Scripts(&[(
            Script::WriteAcquire,
            "",
            "if r[1] == 'BUSY' then r = {'OK', r[3], r[3]} end",
        )]),
    },
    Planted {
        name: "a writer that is always refused",
        tasks: Tasks::ReadWrite,
        faults: &[],
        caught_by: &["admitted"],
        broken: Broken::Scripts(&[(
            Script::WriteAcquire,
            "",
            "if r[1] == 'OK' then server.call('DEL', KEYS[1]); r = {'BUSY', 10, r[3]} end",
        )]),
    },
    Planted {
        name: "a fair lock whose last waiter comes first",
        tasks: Tasks::Fair,
        faults: &[],
        caught_by: &["queue"],
        broken: Broken::Scripts(&[(
            Script::FairAcquire,
            instead_of!("RPUSH", "return send('LPUSH', ...)"),
            "",
        )]),
    },
    Planted {
        name: "permits of the dead that nobody gets back",
        tasks: Tasks::Permits,
        faults: &["process-killed"],
        caught_by: &["leftover", "recovery"],
        broken: Broken::Scripts(&[(
            Script::AcquirePermits,
            instead_of!("ZCOUNT", "return 0"),
            "",
        )]),
    },
    Planted {
        name: "permits that are not taken off",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Scripts(&[(
            Script::AcquirePermits,
            instead_of!(
                "INCRBY",
                "local _, by = ...; if tonumber(by) < 0 then return 1 end"
            ),
            "",
        )]),
    },
    Planted {
        name: "a free lock that is refused",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["order"],
        broken: Broken::Scripts(&[(
            Script::Acquire,
            // The count says that there is a holder, so there has to be one to be read.
            "call = function(send, command, ...)
                if command == 'HLEN' and KEYS[1] == 'lock:try-1' and server.call('TIME')[2] % 4 == 0 then return 1 end
                local answer = send(command, ...)
                if command == 'HGETALL' and #answer == 0 then return {'nobody', '1'} end
                return answer
            end",
            "",
        )]),
    },
    Planted {
        name: "a register that accepts every token",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["stale-write"],
        broken: Broken::Register,
    },
];

/// Makes the proxy call the broken scripts in place of the true ones.
pub(super) fn plant(broken: &'static [Twist], site: &Site) {
    let locks = site.workload.keys().into_iter();
    // Renewals of permits name only the key with their leases.
    let first_keys = |key| [format!("lock:{key}"), format!("{{lock:{key}}}:timeout")];
    let locks: Vec<Vec<u8>> = locks.flat_map(first_keys).map(String::into).collect();
    // This has the broken text by the hash of the true one. It is learned when a client loads the true one.
    let known: RefCell<BTreeMap<Vec<u8>, Vec<u8>>> = RefCell::default();
    site.nodes[0].proxy.rewrite(move |args| match *args {
        [b"SCRIPT", b"LOAD", text] => {
            let text = std::str::from_utf8(text).ok()?;
            let mut all = broken.iter();
            let (script, before, after) = all.find(|(script, ..)| text.ends_with(script.file()))?;
            let hash = sha1_smol::Sha1::from(text).digest().to_string();
            let text = script.broken(text, before, after);
            known.borrow_mut().insert(hash.into(), text.into());
            None
        }
        [b"EVALSHA", hash, keys, ref rest @ ..] => {
            // A script that a manager tries out when it connects stays whole: otherwise, the manager would not connect.
            locks.iter().find(|lock| rest.first() == Some(&&lock[..]))?;
            let text = known.borrow().get(hash)?.clone();
            let rest = rest.iter().map(|arg| arg.to_vec());
            let mut other = vec![b"EVAL".to_vec(), text, keys.to_vec()];
            other.extend(rest);
            Some(other)
        }
        _ => None,
    });
}
