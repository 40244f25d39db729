//! The parts that the tests share: servers, a fault proxy, a second process, the overlap checker.
//!
//! | module | what a test gets from it |
//! | --- | --- |
//! | [`launch`] | the common part of servers of any kind: they can be frozen, killed and restarted |
//! | [`planted`] | bugs in a copy of the library, which torture and the simulation have to find |
//! | [`ports`] | free loopback ports |
//! | [`server`] | a real Redis server of its own |
//! | [`conf`] | the configuration of a Redis server |
//! | [`tls`] | a certificate authority of one server |
//! | [`sql`] | the common part of servers with tables, and a table of a test's own |
//! | [`postgres`], [`mariadb`] | a real PostgreSQL or MariaDB server, of a test or shared by those of a process |
//! | [`mysql`] | MySQL itself in MariaDB's place |
//! | [`pgbouncer`] | a pooler in front of a PostgreSQL server |
//! | [`moto`] | a server that imitates S3 |
//! | [`sentinel`] | a master with replicas and the sentinels that watch them |
//! | [`cluster`] | the masters and replicas of a Redis Cluster, whose slots can be moved |
//! | [`proxy`] | a TCP proxy that cuts, delays or swallows what passes, and counts it |
//! | [`blocker`] | a stranger's transaction that has locked a row |
//! | [`resp`] | the ends of requests and replies in the protocol of Redis |
//! | [`pipe`] | a TCP proxy for any protocol, which cuts and delays |
//! | [`monitor`] | a count of the commands that a server executed between two points |
//! | [`history`] | recorded holds, checked for overlaps and for repeated tokens |
//! | [`linear`](mod@linear) | a check of whether one order of events explains all that clients were told of a lock |
//! | [`judge`], [`workload`] | what torture and the simulation share: the work of their processes, and the checks of it |
//! | [`outcome`] | what test programs said, for the program `suite` that runs them |
//! | [`page`] | the examples and rules that the documentation shows |
//! | [`leftovers`] | proof that a test left no key, channel or client behind |
//! | [`store`] | a store of any kind, and the macro that runs a behaviour on each |
//! | [`shared`] | a Sentinel group and a cluster that the tests of one process share |
//! | [`quorum`] | several stores that keep locks together |
//! | [`randomness`] | the same random bytes in each run of a process |
//! | [`rate`] | proof that keys are served while something is wrong with others |
//! | [`process`] | a second process that contends, and can be killed |
//! | [`java`] | a Java process with a Redisson client in it |
//! | [`faults`] | futures dropped half-way, waiters that sleep, one script's traffic |
//! | [`caps`] | a check of how many callers a manager lets wait |
//! | [`events`] | the events that the runtime logged |
//! | [`stops`] | stops of the machine, and rounds that are run again after one |
//! | [`compile_fail`] | mistakes that do not compile |
//! | [`eventually`](mod@eventually) | waiting for a condition, in place of a fixed sleep |
//!
//! Everything here panics with a message that says what was expected, because only tests call it.

pub mod blocker;
pub mod caps;
pub mod cluster;
pub mod compile_fail;
pub mod conf;
pub mod events;
pub mod eventually;
pub mod faults;
mod first_data;
pub mod history;
pub mod java;
pub mod judge;
pub mod launch;
pub mod leftovers;
pub mod linear;
pub mod mariadb;
pub mod monitor;
pub mod moto;
pub mod mysql;
pub mod outcome;
pub mod page;
pub mod pgbouncer;
pub mod pipe;
pub mod planted;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod quorum;
pub mod randomness;
pub mod rate;
pub mod resp;
mod running;
pub mod sentinel;
pub mod server;
pub mod shared;
pub mod sql;
pub mod stops;
pub mod store;
pub mod tls;
mod unprivileged;
pub mod workload;

pub use blocker::Blocker;
pub use caps::only_so_many_wait;
pub use cluster::RedisCluster;
pub use events::Events;
pub use eventually::{answered, eventually, eventually_within, had_at_once};
pub use history::{History, Hold};
pub use java::JavaPeer;
pub use launch::Server;
pub use mariadb::{Mariadb, MariadbServer, MariadbTable};
pub use monitor::CommandStats;
pub use moto::{MotoServer, S3Answer};
pub use page::{documented_recipe, documented_request, documented_rights};
pub use pgbouncer::{Pgbouncer, PgbouncerServer};
pub use pipe::Pipe;
pub use postgres::{Postgres, PostgresServer, PostgresTable};
pub use process::Worker;
pub use proxy::{Direction, FaultProxy, Protocol, Then};
pub use quorum::Quorum;
pub use sentinel::SentinelGroup;
pub use server::{Data, RedisServer};
pub use sql::{Sql, Table};
pub use store::{Store, builder, connected, left_of};
pub use tls::TlsFiles;
