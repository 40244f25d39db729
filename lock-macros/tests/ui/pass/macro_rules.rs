//! The attribute, its template and its arguments may come out of different macros.
#![deny(warnings)]

use lock_runtime::{LockError, LockName, distributed_lock, key};

macro_rules! all_from_the_macro {
    ($name:ident) => {
        #[distributed_lock(key = "order:{id}", wait = "1s")]
        async fn $name(id: u64) -> Result<u64, LockError> {
            Ok(id)
        }
    };
}

macro_rules! template_from_the_caller {
    ($name:ident, $template:literal) => {
        #[distributed_lock(key = $template, wait = "1s")]
        async fn $name(id: u64) -> Result<u64, LockError> {
            Ok(id)
        }
    };
}

macro_rules! argument_from_the_caller {
    ($name:ident, $argument:ident) => {
        #[distributed_lock(key = "order:{id}", guard = lease)]
        async fn $name($argument: u64) -> Result<u64, LockError> {
            Ok($argument + lease.name().len() as u64)
        }
    };
}

macro_rules! everything_from_the_caller {
    ($key:expr, $wait:expr, $function:item) => {
        #[distributed_lock(key = $key, wait = $wait)]
        $function
    };
}

macro_rules! method {
    ($template:literal, $self:ident, $body:block) => {
        #[distributed_lock(key = $template)]
        async fn method(&$self) -> Result<u64, LockError> $body
    };
}

struct Order(u64);

impl Order {
    method!("order:{self.0}", self, { Ok(self.0) });
}

all_from_the_macro!(one);
template_from_the_caller!(two, "order:{id}");
argument_from_the_caller!(three, id);
everything_from_the_caller!(
    "order:{id}",
    "1s",
    async fn four(id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
);

macro_rules! name {
    ($id:ident) => {
        key!("order:{}", $id)
    };
}

fn name(id: u64) -> LockName {
    name!(id)
}

pub(crate) fn main() {
    drop((one(1), two(2), three(3), four(4), Order(5).method()));
    assert_eq!(name(7).as_str(), "order:7");
}
