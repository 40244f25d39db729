//! The id of a holder: `<client uuid>:<number>`, Redisson's form.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::values::kind::Kind;
use crate::values::{clock, decimal};

/// The first 16 bytes of a holder's SHA-1. The holder's id cannot be found from it.
pub(crate) type Alias = [u8; 16];

fn first_bytes(text: &str) -> [u8; 16] {
    let digest = sha1_smol::Sha1::from(text).digest();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.bytes()[..16]);
    bytes
}

/// The number of characters of a client's id that name its manager. The others name a generation of its ids.
const MANAGER: usize = 18;

/// Returns the part of a holder's id that all ids of its manager have.
pub(crate) fn manager_of(holder: &str) -> &str {
    holder.get(..MANAGER).unwrap_or(holder)
}

/// Returns the name of the record of a holder's client, if the holder is one of this library. The client's id cannot be
/// found from it.
pub(crate) fn client_alias(holder: &str) -> Option<Alias> {
    let (client, _) = holder.rsplit_once(':')?;
    let is_ours = client.len() == Hyphenated::LENGTH && client.as_bytes().get(14) == Some(&b'8');
    is_ours.then(|| first_bytes(manager_of(client)))
}

/// The id of one acquisition at the store. Never reused, so a late or repeated message can only mean this acquisition.
/// The holds of one tenure use it one after the other; nothing that ends it is sent before the last of them has left.
///
/// `Debug` is redacted: anybody who knows an id could release the lock. [`text`](HolderId::text) is what goes on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct HolderId {
    client: Uuid,
    /// With the bit [`KEEPS`] if the holder keeps the lock between its holds.
    number: u64,
}

/// Makes a number 19 digits long, which tells others that the holder keeps the lock while nobody uses it. A Java `long`
/// has room for it.
const KEEPS: u64 = 1 << 62;

/// Whether a holder of this name keeps the lock between its holds, as [`HolderId::keeps`] says of ours.
pub(crate) fn keeps(holder: &str) -> bool {
    let number = holder
        .rsplit_once(':')
        .map(|(_, number)| number.parse::<u64>());
    let keeps = number.is_some_and(|number| matches!(number, Ok(number) if number & KEEPS != 0));
    keeps && client_alias(holder).is_some()
}

impl HolderId {
    /// The acquisition's number, unique in its manager, in the order of asking.
    pub(crate) fn number(self) -> u64 {
        self.number & !KEEPS
    }

    /// Whether the holder keeps the lock between its holds, and gives it up when it is asked to.
    pub(crate) fn keeps(self) -> bool {
        self.number & KEEPS != 0
    }

    /// The id of one of the holder's permits in a semaphore's leases: 16 bytes, as Redisson's are. It follows from the
    /// holder, so that a request that is sent twice names the same permits.
    pub(crate) fn permit(self, index: u32) -> [u8; 16] {
        first_bytes(&format!("{}:{index}", self.text()))
    }

    /// Returns the part of the client's id that others may see, as [`HolderIds::short`] does.
    pub(crate) fn short_client(self) -> String {
        short(self.client)
    }

    /// Returns the name that a holder of this kind has in messages that others can read.
    pub(crate) fn alias(self, kind: Kind) -> Alias {
        if kind == Kind::Semaphore {
            // The store knows permits only by their ids. A set of them is released as a whole: its first permit stands
            // for it.
            return self.permit(0);
        }
        first_bytes(&self.text())
    }

    /// The id that has this text.
    pub(crate) fn parse(text: &str) -> Option<HolderId> {
        let (client, number) = text.split_once(':')?;
        Some(HolderId {
            client: Uuid::try_parse(client).ok()?,
            number: number.parse().ok()?,
        })
    }

    /// The id as the store knows it. Without the machinery of `fmt`: every call to a store needs one.
    pub(crate) fn text(self) -> String {
        let mut client = [0; Hyphenated::LENGTH];
        let mut text = String::with_capacity(Hyphenated::LENGTH + 1 + decimal::LONGEST);
        text.push_str(self.client.hyphenated().encode_lower(&mut client));
        text.push(':');
        decimal::push(&mut text, self.number);
        text
    }
}

impl fmt::Debug for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HolderId(…:{})", self.number())
    }
}

fn short(client: Uuid) -> String {
    let mut text = client.hyphenated().to_string();
    text.truncate(8);
    text
}

/// Makes the holder ids of one manager.
///
/// Two managers may have drawn the same random bytes: those of a process that was restored twice from one snapshot, or
/// of machines whose random generators began alike. So a client's id has two halves. The first one is drawn once, and
/// tells the manager's ids from those of others. The second one is a generation: each connection that carries acquires
/// begins a new generation, made from an answer of the server that no other connection got. An id that was drawn before
/// a connection was opened is [outdated](Fault::Outdated) on it, because a copy of the process may have drawn the same
/// id.
///
/// [`Fault::Outdated`]: crate::backend::Fault::Outdated
pub(crate) struct HolderIds {
    manager: u64,
    /// Nobody else may know it, because each generation is made of it.
    secret: [u8; 16],
    generation: AtomicU64,
    next: AtomicU64,
    /// Ids with lower numbers may be those of a copy of this process.
    former: AtomicU64,
}

impl HolderIds {
    /// A client id from the operating system's random generator. Its version is 8, for Redisson's are of version 4:
    /// in a queue of both, the scripts must tell whose waiters ask again by themselves.
    pub(crate) fn new() -> HolderIds {
        let (manager, generation) = Uuid::new_v4().as_u64_pair();
        HolderIds {
            manager,
            secret: Uuid::new_v4().into_bytes(),
            generation: AtomicU64::new(generation),
            next: AtomicU64::new(1),
            former: AtomicU64::new(0),
        }
    }

    /// Leaves all ids so far to the copies of this process, which may hold locks by them.
    pub(crate) fn leave_to_copies(&self) {
        let first = self.renew("");
        self.former.fetch_max(first, Ordering::SeqCst);
    }

    /// Whether a copy of this process may hold a lock by this id.
    pub(crate) fn are_left_to_copies(&self, id: HolderId) -> bool {
        id.number() < self.former.load(Ordering::SeqCst)
    }

    /// Begins a new generation. `heard`: what a server answered on the connection that was just opened. Returns the number
    /// from which on ids are surely of this generation or of a later one; it is returned once, and no id has it.
    pub(crate) fn renew(&self, heard: &str) -> u64 {
        // The time and the random bytes may differ where a server tells little of the connection: behind a proxy.
        let mut hash = sha1_smol::Sha1::from(self.secret);
        hash.update(heard.as_bytes());
        hash.update(Uuid::new_v4().as_bytes());
        hash.update(&clock::wall_micros().to_le_bytes());
        let mut generation = [0; 8];
        generation.copy_from_slice(&hash.digest().bytes()[..8]);
        // The order of these two, and that of those in `fresh`, keep an id with a later number from having an earlier
        // generation.
        self.generation
            .store(u64::from_le_bytes(generation), Ordering::SeqCst);
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns the part of the client's id that others may see. It is too short to release the client's locks.
    pub(crate) fn short(&self) -> String {
        short(self.client())
    }

    /// Returns the name of this client's record: see [`client_alias`].
    pub(crate) fn client_alias(&self) -> Alias {
        first_bytes(manager_of(&self.client().hyphenated().to_string()))
    }

    /// True if this generator made `id`: the hold is this manager's.
    pub(crate) fn made(&self, id: HolderId) -> bool {
        id.client.as_u64_pair().0 == self.client().as_u64_pair().0
    }

    pub(crate) fn fresh(&self) -> HolderId {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        HolderId {
            client: self.client(),
            number,
        }
    }

    /// An id that tells others that its holder keeps the lock between its holds.
    pub(crate) fn fresh_keeper(&self) -> HolderId {
        let HolderId { client, number } = self.fresh();
        HolderId {
            client,
            number: number | KEEPS,
        }
    }

    /// The generation. It changes with each new connection that carries acquires.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    fn client(&self) -> Uuid {
        let generation = self.generation();
        let bytes = Uuid::from_u64_pair(self.manager, generation).into_bytes();
        uuid::Builder::from_custom_bytes(bytes).into_uuid()
    }
}

impl Default for HolderIds {
    fn default() -> HolderIds {
        HolderIds::new()
    }
}

impl fmt::Debug for HolderIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HolderIds(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_acquisition_has_an_id_of_its_own_in_redissons_form() {
        let ids = HolderIds::new();
        let (a, b) = (ids.fresh().text(), ids.fresh().text());
        assert_ne!(a, b);
        let (client, number) = a.split_once(':').unwrap();
        assert_eq!(client.len(), 36);
        assert_eq!(client, client.to_lowercase());
        assert!(number.parse::<i64>().is_ok(), "a Java long");
        assert_eq!(&a[14..15], "8", "none of Redisson's");
        assert_eq!(HolderId::parse(&a).map(HolderId::text), Some(a));
        assert!(HolderId::parse("a:1").is_none() && HolderId::parse("").is_none());
    }

    #[test]
    fn only_our_holders_lead_to_the_record_of_their_client() {
        let ids = HolderIds::new();
        assert_eq!(client_alias(&ids.fresh().text()), Some(ids.client_alias()));
        assert_ne!(ids.client_alias(), HolderIds::new().client_alias());
        let javas = format!("{}:1", Uuid::new_v4());
        for other in ["", ":1", "uuid:7", &javas, &"8".repeat(1_000)] {
            assert_eq!(client_alias(other), None, "{other}");
        }
    }

    #[test]
    fn the_number_of_a_holder_says_whether_it_keeps_its_lock() {
        let ids = HolderIds::new();
        let (plain, keeper) = (ids.fresh(), ids.fresh_keeper());
        assert!(keeper.keeps() && !plain.keeps());
        assert_eq!((plain.number(), keeper.number()), (1, 2));
        let text = keeper.text();
        // The scripts look at these.
        assert_eq!((text.len(), &text[14..15]), (56, "8"));
        assert!(
            text.split_once(':').unwrap().1.parse::<i64>().is_ok(),
            "a Java long"
        );
        assert_eq!(HolderId::parse(&text), Some(keeper));
        assert!(keeps(&text) && !keeps(&plain.text()));
        let javas = format!("{}:{}", Uuid::new_v4(), KEEPS + 1);
        assert!(!keeps(&javas) && !keeps("") && !keeps("a:b"));
    }

    #[test]
    fn each_connection_begins_a_generation_of_the_same_manager() {
        let ids = HolderIds::new();
        let before = ids.fresh();
        let first = ids.renew("id 7");
        let after = ids.fresh();
        assert!(before.number() < first && after.number() > first);
        let client = |id: HolderId| id.text().split_once(':').unwrap().0.to_owned();
        assert_ne!(client(before), client(after));
        assert!(ids.made(before) && ids.made(after));
        assert_eq!(before.short_client(), after.short_client());
        assert_eq!(client_alias(&before.text()), client_alias(&after.text()));
        assert_eq!(&after.text()[14..15], "8", "none of Redisson's");
    }

    #[test]
    fn copies_of_a_manager_make_other_ids_once_they_are_connected() {
        let ids = HolderIds::new();
        let copy = HolderIds {
            manager: ids.manager,
            secret: ids.secret,
            generation: AtomicU64::new(ids.generation.load(Ordering::SeqCst)),
            next: AtomicU64::new(1),
            former: AtomicU64::new(0),
        };
        assert_eq!(ids.fresh(), copy.fresh());
        let (first, of_copy) = (ids.renew("id 7"), copy.renew("id 8"));
        assert_eq!(first, of_copy);
        assert_ne!(ids.fresh(), copy.fresh());
    }

    #[test]
    fn an_id_is_of_no_earlier_generation_than_its_number() {
        let ids = HolderIds::new();
        let old = ids.fresh().client;
        std::thread::scope(|scope| {
            let drawn = scope.spawn(|| (0..1_000).map(|_| ids.fresh()).collect::<Vec<_>>());
            let first = ids.renew("id 7");
            for id in drawn.join().unwrap() {
                assert!(id.number() < first || id.client != old);
            }
        });
    }

    #[test]
    fn debug_output_does_not_reveal_the_client() {
        let ids = HolderIds::new();
        let id = ids.fresh();
        assert!(!format!("{id:?} {ids:?}").contains(&ids.client().to_string()));
    }

    #[test]
    fn the_alias_is_of_the_first_permit_or_of_the_holder() {
        let id = HolderIds::new().fresh();
        assert_eq!(id.alias(Kind::Semaphore), id.permit(0));
        assert_eq!(id.alias(Kind::Mutex), first_bytes(&id.text()));
        assert_eq!(id.alias(Kind::Mutex), id.alias(Kind::Read));
        assert_ne!(id.permit(0), id.permit(1));
    }
}
