//! What the proxy has to know of a protocol.

use crate::resp;

use super::Direction;

/// What passes through a proxy. Without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2 or RESP3. A frame is a request or a reply.
    Redis,
    /// Version 3. A frame is a message, of which a request or a reply has several.
    Postgres,
    /// Of MySQL and MariaDB. A frame is a packet, of which a reply has several. The server speaks first, and a client sends
    /// its next request when it has the whole reply to the one before.
    Mysql,
}

/// The length of a packet, three bytes of it, and its number.
const PACKET: usize = 4;
/// What a client asks for when it sends a statement.
const QUERY: u8 = 3;
/// What a client that logs in says that it can: the protocol of 4.1, and logins by methods with a name.
const CAN: u32 = 1 << 9 | 1 << 15 | 1 << 19;

/// What a frame from the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// What one client tells others: it answers no request.
    Message,
    /// Something else that answers no request.
    News,
    /// Of a reply that goes on.
    Part,
    /// The end of a reply.
    End,
}

impl Protocol {
    /// A request that a server answers at once, on a connection of its own.
    pub fn hello(self) -> Vec<u8> {
        match self {
            Self::Redis => b"*1\r\n$4\r\nPING\r\n".to_vec(),
            // Its length, the version, who asks, and a database that there is: the server would end the connection, and the
            // proxy with it what is still under way.
            Self::Postgres => b"\0\0\0\x25\0\x03\0\0user\0lock\0database\0postgres\0\0".to_vec(),
            Self::Mysql => {
                let mut login = CAN.to_le_bytes().to_vec();
                login.extend((1_u32 << 24).to_le_bytes());
                // A character set, what is reserved, and a user without a password.
                login.push(45);
                login.extend([0; 23]);
                login.extend(b"lock\0\0mysql_native_password\0");
                packet(1, &login)
            }
        }
    }

    /// Whether the server has answered [`hello`](Self::hello).
    pub fn has_answered(self, said: &[u8]) -> bool {
        match self {
            Self::Redis | Self::Postgres => !said.is_empty(),
            // What it says first is no answer.
            Self::Mysql => matches!(self.frame_len(said), Ok(Some(first)) if said.len() > first),
        }
    }

    /// The length of the complete frame that `bytes` begins with; `None` when more bytes are needed.
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

    /// What a frame from the client says: a command of Redis and its arguments, or what a message of a database is called
    /// and the statement in it, if it has one.
    pub(super) fn words(self, frame: &[u8]) -> Vec<&[u8]> {
        match self {
            Self::Redis => resp::strings(frame),
            Self::Postgres => match statement(frame) {
                Some((from, until)) if frame[0] == b'P' => vec![b"PARSE", &frame[from..until]],
                Some((from, until)) => vec![b"QUERY", &frame[from..until]],
                None => vec![&frame[..1]],
            },
            Self::Mysql => match frame.get(PACKET..) {
                // Numbers count from each request on; what a login sends is none.
                Some([QUERY, text @ ..]) if frame[PACKET - 1] == 0 => vec![b"QUERY", text],
                _ => vec![b"OTHER"],
            },
        }
    }

    /// A frame from the client with other words in it.
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

    /// Whether a frame from the client is the last one of its request.
    pub(super) fn ends_request(self, frame: &[u8]) -> bool {
        match self {
            Self::Redis => true,
            // A start, a synchronisation, a statement in one message.
            Self::Postgres => matches!(frame.first(), Some(0 | b'S' | b'Q')),
            // Nothing has to be counted: no reply is under way when a request is sent.
            Self::Mysql => false,
        }
    }

    /// What a frame from the server is.
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

    /// Why bytes that are no frame are there.
    pub(super) fn complaint(self, direction: Direction, error: &str) -> String {
        format!("{direction:?} of {self:?}, which are not encrypted here: {error}")
    }
}

/// A packet of MySQL.
fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a short packet");
    let [low, middle, high, rest] = length.to_le_bytes();
    assert_eq!(rest, 0, "a packet has at most 16 MiB");
    [&[low, middle, high, number], body].concat()
}

/// Where the statement of a message to PostgreSQL begins and ends, if it has one.
fn statement(frame: &[u8]) -> Option<(usize, usize)> {
    let text_from = |from: usize| {
        let length = frame.get(from..)?.iter().position(|byte| *byte == 0)?;
        Some((from, from + length))
    };
    match frame.first()? {
        b'Q' => text_from(5),
        // Its name comes first.
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
    fn a_packet_of_mysql_ends_where_its_length_says_and_its_statement_is_replaced() {
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
        // A ping, and a packet of a login that begins as a statement does.
        for frame in [&b"\x01\0\0\0\x0e"[..], b"\x02\0\0\x01\x03S"] {
            assert_eq!(protocol.words(frame), [b"OTHER"]);
        }
    }
}
