//! The cluster as one node describes it in `CLUSTER NODES`, and the slots of keys.

use std::ops::RangeInclusive;

/// The number of slots of every cluster.
pub const SLOTS: u16 = 16_384;

/// Returns the slot of a key, by its hash tag if it has one.
pub fn slot_of(key: impl AsRef<[u8]>) -> u16 {
    let key = key.as_ref();
    let tag = |open: usize| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    };
    let open = key.iter().position(|byte| *byte == b'{');
    crc16(open.and_then(tag).unwrap_or(key)) % SLOTS
}

/// Computes CRC-16/XMODEM, bit by bit.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

/// The nodes that one node knows.
#[derive(Debug)]
pub(super) struct View(pub(super) Vec<Row>);

/// A node's master, if it is a replica, and its slots.
pub(super) type Shape<'a> = (&'a Option<String>, &'a [RangeInclusive<u16>]);

/// A node as another one sees it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) port: u16,
    pub(super) flags: Vec<String>,
    /// The id of its master, if it is a replica.
    pub(super) master: Option<String>,
    /// The configuration epoch. Of two masters that claim a slot, the one with the greater epoch has it.
    pub(super) epoch: u64,
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

impl View {
    pub(super) fn parse(lines: &str) -> Self {
        Self(
            lines
                .lines()
                .map(|line| Row::parse(line).unwrap_or_else(|| panic!("no node: {line}")))
                .collect(),
        )
    }

    /// Returns the port of the master that has the slot.
    pub(super) fn owner_of(&self, slot: u16) -> Option<u16> {
        let row = self.0.iter().find(|row| row.has(slot))?;
        Some(row.port)
    }

    /// Returns the master and the slots of each of these nodes, or `None` while one of them seems to be away.
    pub(super) fn shape(&self, ports: &[u16]) -> Option<Vec<Shape<'_>>> {
        let shape = |port: &u16| {
            let row = self.by_port(*port)?;
            let away = ["fail", "fail?", "handshake", "noaddr"];
            let is_there = !away.iter().any(|flag| row.is(flag));
            is_there.then_some((&row.master, &row.slots[..]))
        };
        ports.iter().map(shape).collect()
    }

    /// Returns how many slots have a master.
    pub(super) fn covered(&self) -> usize {
        let ranges = self.0.iter().flat_map(|row| &row.slots);
        ranges.map(ExactSizeIterator::len).sum()
    }

    pub(super) fn by_port(&self, port: u16) -> Option<&Row> {
        self.0.iter().find(|row| row.port == port)
    }
}

impl Row {
    /// Parses `id ip:port@bus[,hostname] flags master ping pong epoch link slots…`.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let (addr, _) = fields.nth(1)?.split_once('@')?;
        let flags = fields.next()?.split(',').map(str::to_owned).collect();
        let master = fields.next().filter(|id| *id != "-").map(str::to_owned);
        let epoch = fields.nth(2)?.parse().ok()?;
        let slots = fields
            .skip(1)
            // A slot that is being moved stands in brackets after the others.
            .filter(|range| !range.starts_with('['))
            .map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                Some(first.parse().ok()?..=last.parse().ok()?)
            });
        Some(Self {
            port: addr.rsplit_once(':')?.1.parse().ok()?,
            flags,
            master,
            epoch,
            slots: slots.collect::<Option<_>>()?,
        })
    }

    pub(super) fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }

    pub(super) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|it| it == flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("{user1000}.following"), slot_of("user1000"));
        assert_eq!(slot_of("a{}b{c}"), crc16(b"a{}b{c}") % SLOTS);
        assert_eq!(slot_of("a{{b}}c"), slot_of("{b"));
    }

    #[test]
    fn a_node_is_read_with_its_slots() {
        let view = View::parse(
            "a1 127.0.0.1:7000@7100 myself,master - 0 0 1 connected 0-99 103 [5->-b2]\n\
             b2 127.0.0.1:7001@7101,host slave a1 0 5 1 connected\n",
        );
        let [master, replica] = &view.0[..] else {
            panic!("{view:?}");
        };
        assert_eq!(view.owner_of(103), Some(7_000));
        assert_eq!(view.owner_of(102), None);
        assert_eq!(view.covered(), 101);
        let slots = [0..=99, 103..=103];
        let shape = view.shape(&[7_001, 7_000]);
        let master_of = Some("a1".to_owned());
        assert_eq!(shape, Some(vec![(&master_of, &[][..]), (&None, &slots)]));
        assert_eq!(view.shape(&[7_000, 7_002]), None);
        assert!(master.is("master") && !replica.is("master"));
        assert_eq!(replica.master.as_deref(), Some("a1"));
    }
}
