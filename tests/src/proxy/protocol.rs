//! The proxy's knowledge of protocols.

use crate::resp;

use super::Direction;

/// The protocol that passes through a proxy, without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2 or RESP3. A frame is a request or a reply.
    Redis,
    /// The protocol of PostgreSQL, version 3. A frame is a message, and a request or a reply has several of them.
    Postgres,
    /// The protocol of MySQL and MariaDB. A frame is a packet, and a reply has several of them. The server speaks
    /// first, and a client sends its next request only when it has the whole reply to the one before.
    Mysql,
}

/// The size of a packet's head: three bytes for the packet's length, and one for its number.
const PACKET: usize = 4;
/// The command with which a client sends a statement.
const QUERY: u8 = 3;
/// The capabilities that a client names when it logs in: the protocol of 4.1, and logins by methods with a name.
const CAN: u32 = 1 << 9 | 1 << 15 | 1 << 19;

/// The kind of a frame from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// A message that one client sends to others. It answers no request.
    Message,
    /// Another frame that answers no request.
    News,
    /// A part of a reply that goes on.
    Part,
    /// The end of a reply.
    End,
}

impl Protocol {
    /// Returns a request that a server answers at once, on a connection of its own.
    pub fn hello(self) -> Vec<u8> {
        match self {
            Self::Redis => b"*1\r\n$4\r\nPING\r\n".to_vec(),
            // This has the message's length, the version, the user, and a database that exists. Without such a
            // database, the server would end the connection, and the proxy would end with it what is still under way.
            Self::Postgres => b"\0\0\0\x25\0\x03\0\0user\0lock\0database\0postgres\0\0".to_vec(),
            Self::Mysql => {
                let mut login = CAN.to_le_bytes().to_vec();
                login.extend((1_u32 << 24).to_le_bytes());
                // These are a character set, reserved bytes, and a user without a password.
                login.push(45);
                login.extend([0; 23]);
                login.extend(b"lock\0\0mysql_native_password\0");
                packet(1, &login)
            }
        }
    }

    /// Returns whether the server has answered [`hello`](Self::hello).
    pub fn has_answered(self, said: &[u8]) -> bool {
        match self {
            Self::Redis | Self::Postgres => !said.is_empty(),
            // The first frame that it sends is no answer.
            Self::Mysql => matches!(self.frame_len(said), Ok(Some(first)) if said.len() > first),
        }
    }

    /// Returns the length of the complete frame that `bytes` begins with, or `None` if more bytes are needed.
    pub(super) fn frame_len(self, bytes: &[u8]) -> Result<Option<usize>, String> {
        match self {
            Self::Redis => resp::frame_len(bytes),
            Self::Postgres => {
                // The first messages of a connection have no letter before their length.
                let letter = usize::from(bytes.first().is_some_and(|first| *first != 0));
                let Some(length) = bytes.get(letter..letter + 4) else {
                    return Ok(None);
                };
                let length: [u8; 4] = length.try_into().map_err(|_| "four bytes".to_owned())?;
                let length = letter + u32::from_be_bytes(length) as usize;
                if length < letter + 4 || length > 1 << 24 {
                    return Err(format!("no message of PostgreSQL is {length} bytes long"));
                }
                Ok((bytes.len() >= length).then_some(length))
            }
            Self::Mysql => {
                let Some(&[low, middle, high, _]) = bytes.first_chunk::<PACKET>() else {
                    return Ok(None);
                };
                let length = PACKET + u32::from_le_bytes([low, middle, high, 0]) as usize;
                Ok((bytes.len() >= length).then_some(length))
            }
        }
    }

    /// Returns the words of a frame from the client: a command of Redis and its arguments, or the name of a message to
    /// a database and the statement in it, if it has one.
    pub(super) fn words(self, frame: &[u8]) -> Vec<&[u8]> {
        match self {
            Self::Redis => resp::strings(frame),
            Self::Postgres => match statement(frame) {
                Some((from, until)) if frame[0] == b'P' => vec![b"PARSE", &frame[from..until]],
                Some((from, until)) => vec![b"QUERY", &frame[from..until]],
                None => vec![&frame[..1]],
            },
            Self::Mysql => match frame.get(PACKET..) {
                // Packets are numbered from 0 in each request. Those of a login have other numbers.
                Some([QUERY, text @ ..]) if frame[PACKET - 1] == 0 => vec![b"QUERY", text],
                _ => vec![b"OTHER"],
            },
        }
    }

    /// Returns a frame from the client with other words in it.
    pub(super) fn with_words(self, frame: &[u8], words: &[Vec<u8>]) -> Vec<u8> {
        match (self, words) {
            (Self::Redis, _) => resp::request(words),
            (Self::Postgres, [_, text]) => {
                let (from, until) = statement(frame).expect("a message with a statement");
                let mut body = [&frame[5..from], text, &frame[until..]].concat();
                let length = u32::try_from(body.len() + 4).expect("a short statement");
                let mut other = vec![frame[0]];
                other.extend(length.to_be_bytes());
                other.append(&mut body);
                other
            }
            (Self::Mysql, [_, text]) => packet(0, &[&[QUERY], &text[..]].concat()),
            (Self::Postgres | Self::Mysql, _) => {
                panic!("a message of a database has a name and a statement")
            }
        }
    }

    /// Returns whether a frame from the client is the last one of its request.
    pub(super) fn ends_request(self, frame: &[u8]) -> bool {
        match self {
            Self::Redis => true,
            // These are a start, a synchronisation, and a statement in one message.
            Self::Postgres => matches!(frame.first(), Some(0 | b'S' | b'Q')),
            // Nothing has to be counted, because no reply is under way when a request is sent.
            Self::Mysql => false,
        }
    }

    /// Returns the kind of a frame from the server.
    pub(super) fn reply(self, frame: &[u8]) -> Reply {
        match self {
            Self::Redis => {
                let kind = resp::strings(frame)
                    .first()
                    .map(|first| first.to_ascii_lowercase());
                match kind.as_deref() {
                    Some(b"message" | b"pmessage" | b"smessage") => Reply::Message,
                    _ if frame.first() == Some(&b'>') => Reply::News,
                    _ => Reply::End,
                }
            }
            Self::Postgres => match frame.first() {
                Some(b'A') => Reply::Message,
                Some(b'Z') => Reply::End,
                _ => Reply::Part,
            },
            Self::Mysql => Reply::Part,
        }
    }

    /// Returns the message for bytes that are no frame.
    pub(super) fn complaint(self, direction: Direction, error: &str) -> String {
        format!("{direction:?} of {self:?}, which are not encrypted here: {error}")
    }
}

/// Returns the packet by which a proxy says that it has lost its connection to MySQL. The error is one of a client.
pub(super) fn server_is_lost() -> Vec<u8> {
    let code = 2013_u16.to_le_bytes();
    let says = b"#HY000Lost connection to server during query";
    packet(1, &[&[0xff], &code[..], says].concat())
}

/// Returns a packet of MySQL.
fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a short packet");
    let [low, middle, high, rest] = length.to_le_bytes();
    assert_eq!(rest, 0, "a packet has at most 16 MiB");
    [&[low, middle, high, number], body].concat()
}

/// Returns where the statement of a message to PostgreSQL begins and ends, if it has one.
fn statement(frame: &[u8]) -> Option<(usize, usize)> {
    let text_from = |from: usize| {
        let length = frame.get(from..)?.iter().position(|byte| *byte == 0)?;
        Some((from, from + length))
    };
    match frame.first()? {
        b'Q' => text_from(5),
        // The name of the prepared statement comes first.
        b'P' => text_from(text_from(5)?.1 + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARSE: &[u8] = b"P\0\0\0\x14\0SELECT 1\0\0\x01\0\0\0\x17";

    #[test]
    fn a_message_of_postgres_ends_where_its_length_says() {
        for frame in [
            PARSE,
            b"S\0\0\0\x04",
            b"Z\0\0\0\x05I",
            &Protocol::Postgres.hello(),
        ] {
            for cut in 0..frame.len() {
                let part = Protocol::Postgres.frame_len(&frame[..cut]);
                assert_eq!(part, Ok(None), "{frame:?} cut at {cut}");
            }
            let followed = [frame, b"S\0\0\0\x04"].concat();
            let length = Protocol::Postgres.frame_len(&followed);
            assert_eq!(length, Ok(Some(frame.len())), "{frame:?}");
        }
        assert!(Protocol::Postgres.frame_len(b"HTTP/1.1 200 OK").is_err());
    }

    #[test]
    fn the_statement_of_a_message_is_found_and_replaced() {
        assert_eq!(
            Protocol::Postgres.words(PARSE),
            [&b"PARSE"[..], b"SELECT 1"]
        );
        let words = [b"PARSE".to_vec(), b"SELECT 22".to_vec()];
        let other = Protocol::Postgres.with_words(PARSE, &words);
        assert_eq!(other, b"P\0\0\0\x15\0SELECT 22\0\0\x01\0\0\0\x17");
        assert_eq!(
            Protocol::Postgres.words(b"Q\0\0\0\x06x\0"),
            [&b"QUERY"[..], b"x"]
        );
        assert_eq!(Protocol::Postgres.words(b"S\0\0\0\x04"), [b"S"]);
    }

    #[test]
    fn a_mysql_packet_ends_at_its_length_and_can_be_rewritten() {
        const QUERY: &[u8] = b"\x09\0\0\0\x03SELECT 1";
        let protocol = Protocol::Mysql;
        for cut in 0..QUERY.len() {
            assert_eq!(protocol.frame_len(&QUERY[..cut]), Ok(None), "cut at {cut}");
        }
        let followed = [QUERY, b"\x01\0\0\0\x0e"].concat();
        assert_eq!(protocol.frame_len(&followed), Ok(Some(QUERY.len())));
        assert_eq!(protocol.words(QUERY), [&b"QUERY"[..], b"SELECT 1"]);
        let words = [b"QUERY".to_vec(), b"SELECT 22".to_vec()];
        let other = protocol.with_words(QUERY, &words);
        assert_eq!(other, b"\x0a\0\0\0\x03SELECT 22");
        // One is a ping, and the other is a packet of a login that begins as a statement does.
        for frame in [&b"\x01\0\0\0\x0e"[..], b"\x02\0\0\x01\x03S"] {
            assert_eq!(protocol.words(frame), [b"OTHER"]);
        }
    }
}
