//! The key of a lock in a store, and the names that derive from it.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock, OnceLock};

use crate::values::decimal;
use crate::values::error::LockError;
use crate::values::holder::Alias;
use crate::values::kind::Kind;
use crate::values::name::{LockName, MAX_BYTES, invalid};

/// The prefix of every fence key, whatever the namespace.
pub(crate) const FENCE_PREFIX: &str = "lock:fence:{";

/// The prefix of the keys that a waiting writer keeps, whatever the namespace.
const WRITER_WAITS: &str = "lock:rw:waiting";

/// The prefix of the waiting lists of mutexes, whatever the namespace. Each list's key has a brace, so that no lock has
/// to be refused whose name only begins like this.
pub(crate) const LIST_PREFIX: &str = "lock:waiting";

/// The part after the namespace in the key of a client's record. Its digits stand between braces, so that no lock has
/// to be refused whose name only begins like this.
const CLIENT_PREFIX: &str = "lock-manager:{";

/// A checked name under its namespace: what the store knows as the lock's key.
#[derive(Clone)]
pub(crate) struct Key {
    raw: Box<str>,
    namespace: usize,
    kind: Kind,
    /// The hash of `raw` and `kind`, computed once: a key is looked up several times on its way.
    hash: u64,
}

/// Maps by key reuse the hash that the key has computed. Its seed is random for each process, because users choose names.
pub(crate) type KeyMap<V> = HashMap<Arc<Key>, V, BuildHasherDefault<Given>>;

/// A hasher that returns the one number it was given.
#[derive(Debug, Default)]
pub(crate) struct Given(u64);

impl Hasher for Given {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only `write_u64` is used; anything else still has to be a hash.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.hash == other.hash && self.kind == other.kind && self.raw == other.raw
    }
}

impl Eq for Key {}

impl Key {
    /// The hash that tables of keys use.
    pub(crate) fn digest(&self) -> u64 {
        self.hash
    }

    /// Checks `name` and puts it under `namespace`.
    pub(crate) fn new(namespace: &str, name: &LockName, kind: Kind) -> Result<Key, LockError> {
        name.check()?;
        let text = name.as_str();
        let raw = [namespace, text].concat();
        let rest = raw.strip_prefix(WRITER_WAITS);
        let of_list = raw.strip_prefix(LIST_PREFIX);
        let why = if raw.len() > MAX_BYTES {
            "a name has 512 bytes at most, namespace included"
        } else if raw.starts_with(FENCE_PREFIX) {
            "keys that start with `lock:fence:{` hold fencing tokens"
        } else if rest.is_some_and(|rest| rest.starts_with(':')) {
            "keys that start with `lock:rw:waiting:` say that a writer waits"
        } else if of_list.is_some_and(|rest| rest.starts_with(':') && rest.contains('{')) {
            "keys that start with `lock:waiting:` and have a brace say who waits for a mutex"
        } else if is_of_client(&raw) {
            "keys that end in `lock-manager:{…}` say who a lock manager is"
        } else {
            return Ok(Key::of_parts(raw, namespace, kind));
        };
        Err(invalid(text, why))
    }

    /// Returns the key of a client's record. It differs from every lock's key, and from every key that belongs to a
    /// lock.
    pub(crate) fn of_client(namespace: &str, client: Alias) -> Key {
        let digits = client.iter().map(|byte| format!("{byte:02x}"));
        let digits: String = digits.collect();
        let raw = [namespace, CLIENT_PREFIX, &digits, "}"].concat();
        Key::of_parts(raw, namespace, Kind::Mutex)
    }

    fn of_parts(raw: String, namespace: &str, kind: Kind) -> Key {
        Key {
            hash: hash_of(&raw, kind),
            kind,
            raw: raw.into(),
            namespace: namespace.len(),
        }
    }

    /// The same name as a lock of another kind.
    pub(crate) fn as_kind(&self, kind: Kind) -> Key {
        Key {
            hash: hash_of(&self.raw, kind),
            kind,
            ..self.clone()
        }
    }

    /// The key as the store knows it.
    pub(crate) fn raw(&self) -> &str {
        &self.raw
    }

    /// The name as the user gave it.
    pub(crate) fn name(&self) -> &str {
        &self.raw[self.namespace..]
    }

    /// Whether both name the same lock, though perhaps different sides of it.
    pub(crate) fn is_of_one_lock_with(&self, other: &Key) -> bool {
        self == other || (self.kind.is_of_one_lock_with(other.kind) && self.raw == other.raw)
    }

    /// Returns the kind of the lock.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Redisson's `prefixName(prefix, raw)`: `prefix:raw` if the raw name holds a `{`, else `prefix:{raw}`.
    pub(crate) fn prefixed(&self, prefix: &str) -> String {
        if self.raw.contains('{') {
            [prefix, ":", &self.raw].concat()
        } else {
            [prefix, ":{", &self.raw, "}"].concat()
        }
    }

    /// Redisson's `suffixName(raw, suffix)`: `raw:suffix` if the raw name holds a `{`, else `{raw}:suffix`.
    pub(crate) fn suffixed(&self, suffix: &str) -> String {
        if self.raw.contains('{') {
            [&self.raw, ":", suffix].concat()
        } else {
            ["{", &self.raw, "}:", suffix].concat()
        }
    }

    /// The cluster slot that it is in.
    pub(crate) fn slot(&self) -> u16 {
        slot(self.raw.as_bytes())
    }

    /// Refuses a name whose derived names would be in other slots than it is: no script could use them together.
    /// Redisson puts braces around a name that has no `{`, and takes a name that has a `{` as it is.
    pub(crate) fn check_one_slot(&self) -> Result<(), LockError> {
        let one = if self.raw.contains('{') {
            tag(self.raw.as_bytes()).is_some()
        } else {
            !self.raw.contains('}')
        };
        if one {
            return Ok(());
        }
        Err(invalid(
            self.name(),
            "in a cluster, a name's first `{` needs a `}` after it with something in between: its keys would be in several slots",
        ))
    }

    /// The key that says, while it lives, that a writer of this library waits for readers to leave.
    pub(crate) fn writer_waits(&self) -> String {
        self.prefixed(WRITER_WAITS)
    }

    /// The key that holds the last fencing token: of every lock in this key's slot, or, for a fenced lock, of this one.
    pub(crate) fn fence(&self) -> String {
        if self.kind == Kind::Fenced {
            return self.prefixed("redisson_lock_token");
        }
        let mut fence = String::with_capacity(FENCE_PREFIX.len() + decimal::LONGEST + 1);
        fence.push_str(FENCE_PREFIX);
        decimal::push(&mut fence, tag_of(slot(self.raw.as_bytes())).into());
        fence.push('}');
        fence
    }
}

/// Whether it is the key of a client's record, of whatever namespace.
fn is_of_client(raw: &str) -> bool {
    let digits = 2 * size_of::<Alias>();
    // Nearly no name has a brace at its end.
    raw.strip_suffix('}')
        .and_then(|rest| rest.get(..rest.len().checked_sub(digits)?))
        .is_some_and(|rest| rest.ends_with(CLIENT_PREFIX))
}

fn hash_of(raw: &str, kind: Kind) -> u64 {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    // Two kinds of one name differ, whatever the name hashes to.
    SEED.hash_one(raw) ^ kind as u64
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

pub(crate) const SLOTS: usize = 16_384;

/// The Redis Cluster slot of a key: CRC16 (XMODEM) of its hash tag, modulo 16384
/// ([Redis Cluster specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags)).
pub(crate) fn slot(key: &[u8]) -> u16 {
    crc16(tag(key).unwrap_or(key)) % SLOTS as u16
}

/// Returns the text between a key's first `{` and the next `}`, unless it is empty.
fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|&byte| byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|&byte| byte == b'}')?;
    (close > 0).then(|| &rest[..close])
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, &byte| {
        (crc << 8) ^ CRC_TABLE[usize::from((crc >> 8) as u8 ^ byte)]
    })
}

const CRC_TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

/// The frozen table slot → tag: the smallest decimal number whose text falls into the slot. Every version and
/// every language that shares fence keys must use it, so it may never change.
pub(crate) fn tag_of(slot: u16) -> u32 {
    static TABLE: OnceLock<Box<[u32]>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        const EMPTY: u32 = u32::MAX;
        let mut table = vec![EMPTY; SLOTS].into_boxed_slice();
        let mut missing = SLOTS;
        let mut text = String::new();
        for number in 0.. {
            text.clear();
            decimal::push(&mut text, u64::from(number));
            let entry = &mut table[usize::from(crc16(text.as_bytes())) % SLOTS];
            if *entry == EMPTY {
                *entry = number;
                missing -= 1;
                if missing == 0 {
                    break;
                }
            }
        }
        table
    });
    table[usize::from(slot)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        Key::new(namespace, &LockName::from(name), Kind::Mutex).unwrap()
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(
            crc16(b"123456789"),
            0x31c3,
            "the check value of CRC16/XMODEM"
        );
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(
            slot(b"foo{}{bar}"),
            crc16(b"foo{}{bar}") % 16_384,
            "an empty tag is no tag"
        );
        assert_eq!(slot(b"foo{{bar}}zap"), crc16(b"{bar") % 16_384);
    }

    #[test]
    fn the_fence_key_shares_the_slot_of_its_lock() {
        for name in ["a", "order:1", "{tag}x", "x{}y", "größe"] {
            let key = key("lock:", name);
            assert_eq!(
                slot(key.fence().as_bytes()),
                slot(key.raw().as_bytes()),
                "{name}"
            );
        }
    }

    #[test]
    fn the_table_of_fence_tags_is_frozen() {
        assert_eq!([0, 1, 2, 12_182, 16_383].map(tag_of), FROZEN_SAMPLES);
        let sum = (0..16_384).fold(0_u64, |sum, slot| {
            sum.wrapping_mul(31).wrapping_add(u64::from(tag_of(slot)))
        });
        assert_eq!(sum, FROZEN_SUM);
    }

    const FROZEN_SAMPLES: [u32; 5] = [3_560, 22_179, 48_756, 43_681, 39_296];
    const FROZEN_SUM: u64 = 13_536_670_272_240_196_212;

    #[test]
    fn derived_names_are_redissons() {
        assert_eq!(key("", "order:1").prefixed("p"), "p:{order:1}");
        assert_eq!(key("", "a{b}c").prefixed("p"), "p:a{b}c");
        assert_eq!(key("lock:", "x").prefixed("p"), "p:{lock:x}");
        assert_eq!(key("lock:", "x").suffixed("timeout"), "{lock:x}:timeout");
        assert_eq!(key("", "a{b}c").suffixed("timeout"), "a{b}c:timeout");
        assert_eq!(key("", "order:1").suffixed("s"), "{order:1}:s");
        assert_eq!(key("", "a{b}c").suffixed("s"), "a{b}c:s");
    }

    #[test]
    fn names_whose_braces_split_their_keys_are_refused_in_a_cluster() {
        for (name, split) in [
            ("order:1", false),
            ("a{b}c", false),
            ("{a}{b}", false),
            ("{a}", false),
            ("a}{b}", false),
            ("a{b", true),
            ("a}b", true),
            ("x{}y", true),
            ("{}", true),
            ("{}{a}", true),
        ] {
            let key = key("", name);
            assert_eq!(key.check_one_slot().is_err(), split, "{name}");
            if !split {
                for derived in [key.prefixed("p"), key.suffixed("s"), key.fence()] {
                    assert_eq!(slot(derived.as_bytes()), slot(name.as_bytes()), "{name}");
                }
            }
        }
    }

    #[test]
    fn a_lock_cannot_be_put_over_a_fence_key() {
        let refused = |namespace: &str, name: &str| {
            Key::new(namespace, &LockName::from(name), Kind::Mutex)
                .is_err_and(|error| !error.is_retryable())
        };
        assert!(refused("lock:", "fence:{7}"));
        assert!(refused("", "lock:fence:{7}"));
        assert!(!refused("lock:", "fence:7"));
        assert!(refused("lock:", "rw:waiting:{x}"));
        assert!(!refused("lock:", "rw:waiting"));
        assert!(refused("lock:", "waiting:{x}") && refused("", "lock:waiting:a{x"));
        assert!(!refused("lock:", "waiting:x") && !refused("lock:", "waiting{x}"));
    }

    #[test]
    fn a_lock_cannot_be_put_over_the_record_of_a_client() {
        let client = [0xA7; 16];
        let digits = "a7".repeat(16);
        let record = Key::of_client("app:", client);
        assert_eq!(record.raw(), format!("app:lock-manager:{{{digits}}}"));
        let own = Key::of_client("", client);
        for (namespace, name) in [
            ("app:", own.raw()),
            ("", record.raw()),
            ("app:lock-man", &format!("ager:{{{digits}}}")),
        ] {
            let refused = Key::new(namespace, &LockName::from(name), Kind::Mutex);
            assert!(refused.is_err(), "{namespace} {name}");
        }
        for name in ["lock-manager:{7}", "{7}", "}", "ß}", "lock-manager:7"] {
            key("", name);
        }
    }

    #[test]
    fn keys_of_one_name_and_two_kinds_are_two() {
        let (mutex, other) = (key("lock:", "a"), key("lock:", "b"));
        let fair = mutex.as_kind(Kind::Fair);
        assert!(mutex == mutex.clone() && mutex != other && mutex != fair);
        // Their hashes differ as well: maps would be slow otherwise.
        assert!(mutex.hash != other.hash && mutex.hash != fair.hash);
    }
}
