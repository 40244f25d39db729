//! The part of the Redis protocol that shows where one request or reply ends.

/// Returns the length of the complete frame that `bytes` begins with, or `None` if more bytes are needed.
///
/// # Errors
/// A message if the bytes are no RESP2 or RESP3 frame.
pub fn frame_len(bytes: &[u8]) -> Result<Option<usize>, String> {
    let mut at = 0;
    // The frames still to come. Nested aggregates add theirs, so there is no recursion and no depth limit.
    let mut open = 1_usize;
    while open > 0 {
        let Some((header, next)) = line(bytes, at) else {
            return Ok(None);
        };
        let Some((&kind, rest)) = header.split_first() else {
            return Err("an empty line where a frame should begin".to_owned());
        };
        at = next;
        open -= 1;
        match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {}
            b'$' | b'=' | b'!' => {
                if let Some(len) = length(rest)? {
                    at += len + 2;
                    if at > bytes.len() {
                        return Ok(None);
                    }
                }
            }
            b'*' | b'~' | b'>' => open += length(rest)?.unwrap_or(0),
            b'%' => open += 2 * length(rest)?.unwrap_or(0),
            // An attribute describes the frame that follows it: both count as one.
            b'|' => open += 2 * length(rest)?.unwrap_or(0) + 1,
            other => return Err(format!("no RESP frame begins with {:?}", char::from(other))),
        }
    }
    Ok(Some(at))
}

/// Returns the elements of a flat array or push of strings, such as a request or a pub/sub message. Elements of other
/// types come back empty.
pub fn strings(frame: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let Some((header, mut at)) = line(frame, 0) else {
        return found;
    };
    if !matches!(header.first(), Some(b'*' | b'>')) {
        return found;
    }
    while at < frame.len() {
        let Ok(Some(len)) = frame_len(&frame[at..]) else {
            return found;
        };
        let element = &frame[at..at + len];
        at += len;
        found.push(match (element.first(), line(element, 0)) {
            (Some(b'$'), Some((_, body))) if element.len() >= body + 2 => {
                &element[body..element.len() - 2]
            }
            _ => &[],
        });
    }
    found
}

/// Returns a request with these arguments.
pub fn request(args: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        frame.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        frame.extend_from_slice(arg);
        frame.extend_from_slice(b"\r\n");
    }
    frame
}

fn line(bytes: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let tail = bytes.get(from..)?;
    let end = tail.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&tail[..end], from + end + 2))
}

fn length(digits: &[u8]) -> Result<Option<usize>, String> {
    if digits == b"-1" {
        return Ok(None);
    }
    let text = std::str::from_utf8(digits).map_err(|error| error.to_string())?;
    text.parse()
        .map(Some)
        .map_err(|error| format!("a length of {text:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_ends_where_its_last_element_ends() {
        for frame in [
            &b"+OK\r\n"[..],
            b"$-1\r\n",
            b"$0\r\n\r\n",
            b"*0\r\n",
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
            b"*3\r\n:1\r\n*1\r\n+a\r\n$4\r\n\r\n\r\n\r\n",
            b"%1\r\n+a\r\n:1\r\n",
            b"|1\r\n+a\r\n:1\r\n+reply\r\n",
            b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n",
        ] {
            for cut in 0..frame.len() {
                assert_eq!(frame_len(&frame[..cut]), Ok(None), "{frame:?} cut at {cut}");
            }
            let followed = [frame, b"+MORE\r\n"].concat();
            assert_eq!(frame_len(&followed), Ok(Some(frame.len())), "{frame:?}");
        }
    }

    #[test]
    fn bytes_of_another_protocol_are_an_error() {
        assert!(frame_len(b"HTTP/1.1 200 OK\r\n").is_err());
    }

    #[test]
    fn the_strings_of_a_request_are_its_arguments() {
        assert_eq!(
            strings(b"*2\r\n$3\r\nGET\r\n$3\r\nk\r\n\r\n"),
            [&b"GET"[..], b"k\r\n"]
        );
        assert_eq!(
            strings(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").len(),
            3
        );
        assert!(strings(b"+OK\r\n").is_empty());
    }
}
