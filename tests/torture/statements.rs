//! The statements of a store that keeps its locks in a table, told on the wire by the files that they are made of.

/// A statement as it stands in its file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statement(pub(crate) &'static str);

/// One of PostgreSQL's, by its name.
macro_rules! postgres {
    ($name:literal) => {
        $crate::statements::Statement(include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../lock-runtime/src/backend/postgres/sql/",
            $name,
            ".sql"
        )))
    };
}
pub(crate) use postgres;

impl Statement {
    /// Without comments, as it is sent.
    pub(crate) fn text(self) -> String {
        let lines = self.0.lines();
        let lines = lines.filter(|line| !line.trim_start().starts_with("--"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Whether it is what was sent, with something in place of each `{word}`.
    pub(crate) fn is(self, sent: &str) -> bool {
        let text = self.text();
        let mut pieces = pieces(&text).into_iter();
        let Some(mut rest) = pieces.next().and_then(|first| sent.strip_prefix(first)) else {
            return false;
        };
        let Some(last) = pieces.next_back() else {
            return rest.is_empty();
        };
        for piece in pieces {
            let Some((_, after)) = rest.split_once(piece) else {
                return false;
            };
            rest = after;
        }
        rest.ends_with(last)
    }
}

/// What stands before, between and after the `{word}`s. Other braces are part of the text.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut begin, mut from) = (0, 0);
    while let Some(open) = text[from..].find('{').map(|at| from + at) {
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        let word = text[open + 1..].bytes().take_while(|byte| is_word(*byte));
        let close = open + 1 + word.count();
        from = open + 1;
        if close > from && text[close..].starts_with('}') {
            pieces.push(&text[begin..open]);
            (begin, from) = (close + 1, close + 1);
        }
    }
    pieces.push(&text[begin..]);
    pieces
}
