//! Return types that borrow from the arguments without naming a lifetime.
#![deny(warnings)]

use std::collections::HashMap;
use std::fmt::Display;
use std::pin::Pin;

use async_trait::async_trait;
use lock_runtime::{LockError, distributed_lock};

struct Words<'a>(&'a str);

#[distributed_lock(key = "words:{text}")]
async fn first_word(text: &str) -> Result<&str, LockError> {
    std::future::ready(()).await;
    Ok(text.split(' ').next().unwrap_or(text))
}

#[distributed_lock(key = "words:{text}")]
async fn words(text: &str) -> Result<Words<'_>, LockError> {
    Ok(Words(text))
}

#[distributed_lock(key = "words")]
async fn first_of_words(
    words: Words<'_>,
) -> Result<(&str, [&str; 1], Box<dyn Display + Send + '_>), LockError> {
    Ok((words.0, [words.0], Box::new(words.0)))
}

#[distributed_lock(key = "words", guard = lease)]
async fn with_lease(text: &str) -> Result<Option<&str>, LockError> {
    Ok(lease.is_held().then_some(text))
}

#[distributed_lock(key = "words:{text}", on_busy = skip)]
async fn unless_busy(text: &str) -> Result<Option<&str>, LockError> {
    Ok(Some(text))
}

#[distributed_lock(key = "words:{text}", on_busy = skip)]
async fn unless_anything(text: &mut String) -> Option<&mut String> {
    Some(text)
}

#[distributed_lock(key = "words:{text}", on_busy = call(whole))]
async fn first_or_whole(text: &str) -> Result<&str, LockError> {
    Ok(&text[..1])
}

async fn whole(text: &str, _error: LockError) -> Result<&str, LockError> {
    Ok(text)
}

#[distributed_lock(key = "words:{text}", map_err = |_| "")]
async fn mapped(text: &str) -> &str {
    text
}

#[distributed_lock(key = "words:{text}", map_err = no_words)]
async fn mapped_by_path(text: &str) -> Words<'_> {
    Words(text)
}

fn no_words(_: LockError) -> Words<'static> {
    Words("")
}

#[distributed_lock(key = "words:{text}")]
fn opaque(text: &str) -> impl Future<Output = Result<&str, LockError>> + Send + '_ {
    async move { Ok(text) }
}

#[distributed_lock(key = "words:{text}")]
fn boxed(text: &str) -> Pin<Box<dyn Future<Output = Result<Words<'_>, LockError>> + Send + '_>> {
    Box::pin(async move { Ok(Words(text)) })
}

#[distributed_lock(key = "words:{text}")]
fn boxed_after_some_work(
    text: &str,
) -> Pin<Box<dyn Future<Output = Result<&str, LockError>> + '_>> {
    let text = text.trim();
    Box::pin(async move { Ok(text) })
}

#[distributed_lock(key = "words:{text}")]
async fn opaque_result(text: &str) -> Result<impl Iterator<Item = &str> + '_, LockError> {
    Ok(text.split(' '))
}

#[distributed_lock(key = "words:{text}")]
async fn returns_a_future(text: &str) -> Result<impl Future<Output = &str> + '_, LockError> {
    Ok(std::future::ready(text))
}

#[distributed_lock(key = "words:{text}")]
async fn functions(
    text: &str,
) -> Result<(fn(&str) -> &str, Box<dyn Fn(&str) -> &str + Send>), LockError> {
    Ok((str::trim, Box::new(str::trim)))
}

struct Table {
    rows: HashMap<u64, String>,
}

impl Table {
    #[distributed_lock(key = "row:{id}")]
    async fn row(&self, id: u64) -> Result<Option<&String>, LockError> {
        Ok(self.rows.get(&id))
    }

    #[distributed_lock(key = "row:{id}")]
    async fn row_mut(&mut self, id: u64, _other: &str) -> Result<Option<&mut String>, LockError> {
        Ok(self.rows.get_mut(&id))
    }

    #[distributed_lock(key = "rows")]
    async fn pinned(self: Pin<&mut Self>) -> Result<&mut String, LockError> {
        Ok(self.get_mut().rows.entry(0).or_default())
    }

    #[distributed_lock(key = "rows")]
    fn opaque(&mut self) -> impl Future<Output = Result<Option<&mut String>, LockError>> + '_ {
        let first = self.rows.values_mut().next();
        async move { Ok(first) }
    }
}

#[async_trait]
trait Rows {
    async fn get(&self, id: u64) -> Result<Option<&String>, LockError>;
    async fn get_mut(&mut self, id: u64) -> Result<Option<&mut String>, LockError>;
    async fn word(text: &str) -> Result<Words<'_>, LockError>;
    async fn skipped(&self) -> Option<&String>;
}

#[async_trait]
impl Rows for Table {
    #[distributed_lock(key = "row:{id}")]
    async fn get(&self, id: u64) -> Result<Option<&String>, LockError> {
        Ok(self.rows.get(&id))
    }

    #[distributed_lock(key = "row:{id}")]
    async fn get_mut(&mut self, id: u64) -> Result<Option<&mut String>, LockError> {
        Ok(self.rows.get_mut(&id))
    }

    #[distributed_lock(key = "word:{text}")]
    async fn word(text: &str) -> Result<Words<'_>, LockError> {
        Ok(Words(text))
    }

    #[distributed_lock(key = "rows", on_busy = skip)]
    async fn skipped(&self) -> Option<&String> {
        self.rows.values().next()
    }
}

fn needs_send<T: Send>(_: T) {}

pub(crate) fn main() {
    let text = String::from("a b");
    needs_send(first_word(&text));
    needs_send(words(&text));
    needs_send(first_of_words(Words(&text)));
    needs_send(with_lease(&text));
    needs_send(unless_busy(&text));
    needs_send(unless_anything(&mut text.clone()));
    needs_send(first_or_whole(&text));
    needs_send(mapped(&text));
    needs_send(mapped_by_path(&text));
    needs_send(opaque(&text));
    needs_send(boxed(&text));
    drop(boxed_after_some_work(&text));
    needs_send(opaque_result(&text));
    needs_send(returns_a_future(&text));
    needs_send(functions(&text));
    let mut table = Table {
        rows: HashMap::new(),
    };
    needs_send(table.row(1));
    needs_send(table.row_mut(1, &text));
    needs_send(Pin::new(&mut table).pinned());
    drop(table.opaque());
    needs_send(table.get(1));
    needs_send(table.get_mut(1));
    needs_send(Table::word(&text));
    needs_send(table.skipped());
}
