//! Tests of the support library itself, and of documents against what they speak of.

mod cluster;
mod dashboard;
mod documents;
mod pasted;
mod proxy;
mod server;
mod shared;
mod torture;
