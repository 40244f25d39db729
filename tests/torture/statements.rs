//! The statements of a store that keeps its locks in a table. They are recognized on the wire by the files that they
//! are made of.

use std::collections::BTreeMap;

/// A statement as it stands in its file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statement(pub(crate) &'static str);

/// A statement of PostgreSQL, by its name.
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

/// A statement of MySQL, by its name.
macro_rules! mysql {
    ($name:literal) => {
        $crate::statements::Statement(include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../lock-runtime/src/backend/mysql/sql/",
            $name,
            ".sql"
        )))
    };
}
pub(crate) use mysql;

/// The text in place of each `{word}` and each `$1`. PostgreSQL is sent `$1` as it stands, and MySQL is sent the
/// argument.
pub(crate) type Fillings<'a> = BTreeMap<String, &'a str>;

impl Statement {
    /// Returns the text without comments.
    pub(crate) fn text(self) -> String {
        let lines = self.0.lines();
        let lines = lines.filter(|line| !line.trim_start().starts_with("--"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns its text, and what that was filled with, if this statement was sent.
    pub(crate) fn as_sent(self, sent: &str) -> Option<(String, Fillings<'_>)> {
        self.forms().into_iter().find_map(|text| {
            let (first, gaps) = parts(&text);
            let mut fillings = Fillings::new();
            let is_it = fits(&gaps, sent.strip_prefix(first)?, &mut fillings);
            is_it.then_some((text, fillings))
        })
    }

    /// Returns the statement as it stands there, and as MySQL is sent it by those who do not wait for a row that is
    /// locked.
    fn forms(self) -> [String; 2] {
        let text = self.text();
        let unwaiting = text.replace("l.name = $1", "l.name = @unlocked");
        [text, format!("SET @unlocked = {{unlocked}}; {unwaiting}")]
    }
}

/// Returns the text with its gaps filled, or `None` if it has others.
pub(crate) fn filled(text: &str, fillings: &Fillings<'_>) -> Option<String> {
    let (first, gaps) = parts(text);
    let mut filled = first.to_owned();
    for (name, after) in gaps {
        filled += fillings.get(name)?;
        filled += after;
    }
    Some(filled)
}

/// A gap, and the text between it and the next one.
type Gap<'a> = (&'a str, &'a str);

/// Returns the text before the first gap, and the gaps. Other braces and signs are part of the text.
fn parts(text: &str) -> (&str, Vec<Gap<'_>>) {
    let mut gaps = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(['{', '$']).map(|at| from + at) {
        let rest = &text[at + 1..];
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        let word = rest.bytes().take_while(|byte| is_word(*byte)).count();
        let length = match text.as_bytes()[at] {
            b'{' if word > 0 && rest[word..].starts_with('}') => word + 2,
            b'$' if rest.starts_with(|c: char| c.is_ascii_digit()) => 2,
            _ => 0,
        };
        from = at + length.max(1);
        if length > 0 {
            gaps.push((at, from));
        }
    }
    let ends = gaps.iter().skip(1).map(|(at, _)| *at).chain([text.len()]);
    let first = gaps.first().map_or(text.len(), |(at, _)| *at);
    let gap = |(&(at, from), end): (&(usize, usize), usize)| (&text[at..from], &text[from..end]);
    (&text[..first], gaps.iter().zip(ends).map(gap).collect())
}

/// Returns whether what was sent fits the gaps, with one text for each name.
fn fits<'a>(gaps: &[Gap<'_>], sent: &'a str, fillings: &mut Fillings<'a>) -> bool {
    let [(name, after), rest @ ..] = gaps else {
        return sent.is_empty();
    };
    let go_on = |with: usize, fillings: &mut Fillings<'a>| {
        let left = sent[with..].strip_prefix(after);
        left.is_some_and(|left| fits(rest, left, fillings))
    };
    if let Some(&known) = fillings.get(*name) {
        return sent.starts_with(known) && go_on(known.len(), fillings);
    }
    let ends = if rest.is_empty() {
        // Only the end of what was sent can end the last gap.
        Vec::from_iter(sent.len().checked_sub(after.len()))
    } else {
        sent.match_indices(after).map(|(at, _)| at).collect()
    };
    for end in ends.into_iter().filter(|end| sent.is_char_boundary(*end)) {
        fillings.insert((*name).to_owned(), &sent[..end]);
        if go_on(end, fillings) {
            return true;
        }
    }
    fillings.remove(*name);
    false
}
