//! The book: pages that are too long for the documentation of an item.
//!
//! In reading order:
//!
//! 1. [The guide](guide): how to use the library by hand, by attribute and as a Tower layer.
//! 2. [Tutorial](tutorial): a service with nine routes, step by step, with its tests.
//! 3. [What is guaranteed, what is not, and what to do about it](guarantees).
//! 4. [Fencing](fencing): how a database refuses late writes; recipes for PostgreSQL, SQLite, MySQL, Redis and S3.
//! 5. [Running on Redis](redis): settings, rights, TLS, Sentinel, Cluster, replicas.
//! 6. [Running on PostgreSQL](postgres): the table, URLs, rights, poolers, failover, what it costs the database.
//!    [Running on MySQL and MariaDB](mysql): the same, and how waiting works without messages.
//! 7. [Redisson's locks on the wire](redisson_compatibility): the format, for clients in other languages.
//! 8. [Metrics and traces](metrics): what is counted, by which labels, which spans there are, and what to watch.
//! 9. [On call](operations): outages, connections, alerts, the log, locks by hand, upgrades, restoring, draining.
//! 10. [Testing](testing): a store that a test controls, paused clocks, loss, outage; without a server and with one.
//! 11. [Which lock?](comparison): other locks, and when not to use this library.
//! 12. [Speed](speed): where the library is fast, and where it is slow.
//! 13. [What was measured](measured): locks under torture, many holds, busy cores.
//! 14. [Evidence](evidence): what is checked by which means, and what other libraries do under the same faults.
//! 15. [Threat model](threat_model): who can do what, and what holds against them.
//!
//! # In the repository
//!
//! Some links of these pages lead here, for what they name is in the source repository and not in this documentation:
//!
//! * `README.md`, and `docs/benchmarks.md`: this library beside eight others;
//! * `ARCHITECTURE.md`: which file does what; `DESIGN.md`: why it is so;
//! * `examples`: programs to start from; `tests`: which file proves which promise;
//! * the crate `tower-lock`, which has documentation of its own.

/// Where the links of the pages lead in this documentation. In the repository they lead to files: each page ends with
/// the same labels. The first definition of a label counts, so these have to come before the page.
macro_rules! links {
    () => {
        "
[crate]: crate
[book]: crate::_documentation
[README.md]: crate::_documentation#in-the-repository
[DESIGN.md#what-does-a-cycle-cost]: crate::_documentation#in-the-repository
[DESIGN.md#why-do-processes-wait-on-a-list]: crate::_documentation#in-the-repository
[DESIGN.md#why-does-a-process-rest-after-a-slice]: crate::_documentation#in-the-repository
[DESIGN.md#why-is-a-release-awaited-and-what-does-a-drop-do]: crate::_documentation#in-the-repository
[CHANGELOG.md]: crate::_documentation#in-the-repository
[benchmarks.md]: crate::_documentation#in-the-repository
[dashboard]: crate::_documentation#in-the-repository
[observability]: crate::_documentation#in-the-repository
[cron-once]: crate::_documentation#in-the-repository
[axum-orders]: crate::_documentation#in-the-repository
[examples]: crate::_documentation#in-the-repository
[fenced-writes]: crate::_documentation#in-the-repository
[flash-sale]: crate::_documentation#in-the-repository
[fuzz]: crate::_documentation#in-the-repository
[histories]: crate::_documentation#in-the-repository
[peers]: crate::_documentation#in-the-repository
[simulate]: crate::_documentation#in-the-repository
[verify]: crate::_documentation#in-the-repository
[postgres-fencing]: crate::_documentation#in-the-repository
[postgres-transactions]: crate::_documentation#in-the-repository
[review-site]: crate::_documentation#in-the-repository
[review-site-cache]: crate::_documentation#in-the-repository
[review-site-fence]: crate::_documentation#in-the-repository
[review-site-process]: crate::_documentation#in-the-repository
[review-site-sale]: crate::_documentation#in-the-repository
[review-site-stream]: crate::_documentation#in-the-repository
[tests]: crate::_documentation#in-the-repository
[tutorial-program]: crate::_documentation#in-the-repository
[tower-lock]: crate::_documentation#in-the-repository

[comparison.md]: crate::_documentation::comparison
[evidence.md]: crate::_documentation::evidence
[fencing.md]: crate::_documentation::fencing
[guarantees.md]: crate::_documentation::guarantees
[guarantees.md#a-grant-by-a-message]: crate::_documentation::guarantees#a-grant-by-a-message
[guarantees.md#cluster]: crate::_documentation::guarantees#cluster
[guarantees.md#fairness]: crate::_documentation::guarantees#fairness
[guarantees.md#guaranteed]: crate::_documentation::guarantees#guaranteed
[guarantees.md#ids]: crate::_documentation::guarantees#ids
[guarantees.md#quorums]: crate::_documentation::guarantees#quorums
[guarantees.md#replicas]: crate::_documentation::guarantees#replicas
[guarantees.md#sentinel]: crate::_documentation::guarantees#sentinel
[guarantees.md#several-locks]: crate::_documentation::guarantees#several-locks
[guarantees.md#when-no-failover-makes-two-holders]: crate::_documentation::guarantees#when-no-failover-makes-two-holders
[guarantees.md#when-the-machine-sleeps]: crate::_documentation::guarantees#when-the-machine-sleeps
[guide.md#what-looks-locked-and-is-not]: crate::_documentation::guide#what-looks-locked-and-is-not
[LostReason]: crate::LostReason
[health]: crate::LockManager::health
[measured.md]: crate::_documentation::measured
[metrics.md]: crate::_documentation::metrics
[guide.md#without-a-runtime]: crate::_documentation::guide#without-a-runtime
[mysql.md]: crate::_documentation::mysql
[mysql.md#inside-your-own-transaction]: crate::_documentation::mysql#inside-your-own-transaction
[mysql.md#replicas-and-failover]: crate::_documentation::mysql#replicas-and-failover
[mysql.md#the-tables]: crate::_documentation::mysql#the-tables
[mysql.md#waiting]: crate::_documentation::mysql#waiting
[mysql-schema.sql]: crate::_documentation#in-the-repository
[operations.md]: crate::_documentation::operations
[operations.md#how-long-an-outage-a-hold-survives]: crate::_documentation::operations#how-long-an-outage-a-hold-survives
[operations.md#settings-that-keep-locks-alive]: crate::_documentation::operations#settings-that-keep-locks-alive
[postgres.md]: crate::_documentation::postgres
[postgres.md#behind-proxies-poolers-and-managed-services]: crate::_documentation::postgres#behind-proxies-poolers-and-managed-services
[postgres.md#the-table]: crate::_documentation::postgres#the-table
[postgres.md#inside-your-own-transaction]: crate::_documentation::postgres#inside-your-own-transaction
[fencing.md#several-rows-one-fence]: crate::_documentation::fencing#several-rows-one-fence
[schema.sql]: crate::_documentation#in-the-repository
[redis.md]: crate::_documentation::redis
[redis.md#behind-proxies-and-managed-services]: crate::_documentation::redis#behind-proxies-and-managed-services
[redis.md#connecting]: crate::_documentation::redis#connecting
[redis.md#least-privilege]: crate::_documentation::redis#least-privilege
[redis.md#settings-of-the-server]: crate::_documentation::redis#settings-of-the-server
[redis.md#urls]: crate::_documentation::redis#urls
[redis.md#who-holds-it]: crate::_documentation::redis#who-holds-it
[redisson-compatibility.md]: crate::_documentation::redisson_compatibility
[redisson-compatibility.md#leases-of-readers]: crate::_documentation::redisson_compatibility#leases-of-readers
[speed.md]: crate::_documentation::speed
[speed.md#many-processes-at-one-key]: crate::_documentation::speed#many-processes-at-one-key
[testing.md]: crate::_documentation::testing
[threat-model.md]: crate::_documentation::threat_model
[tutorial.md]: crate::_documentation::tutorial

[FencingToken]: crate::FencingToken
[Leader]: crate::Leader
[Lease::closing]: crate::Lease::closing
[Lease::current]: crate::Lease::current
[Lease::scope]: crate::Lease::scope
[LockError]: crate::LockError
[LockManager]: crate::LockManager
[LockManagerBuilder]: crate::LockManagerBuilder
[MemoryStore]: crate::MemoryStore
[TryAcquire]: crate::TryAcquire
[as_global]: crate::LockManager::as_global
[campaign]: crate::Election::campaign
[elect]: crate::LockManager::elect
[blocking]: crate::blocking
[fair]: crate::LockManager::fair
[fenced]: crate::LockManager::fenced
[force_release]: crate::LockManager::force_release
[ids]: crate::LockManager::ids
[inspect]: crate::LockManager::inspect
[latch]: crate::LockManager::latch
[lead]: crate::Election::lead
[multi]: crate::LockManager::multi
[mutex]: crate::LockManager::mutex
[observe]: crate::Election::observe
[plain_semaphore]: crate::LockManager::plain_semaphore
[read]: crate::LockManager::read
[run]: crate::LockRequest::run
[scope]: crate::LockGuard::scope
[semaphore]: crate::LockManager::semaphore
[shutdown]: crate::LockManager::shutdown
[write]: crate::LockManager::write

"
    };
}

// The attribute has a manual of its own where it is there.
#[cfg_attr(
    feature = "macros",
    doc = "[attribute]: macro@crate::distributed_lock\n"
)]
#[cfg_attr(
    not(feature = "macros"),
    doc = "[attribute]: crate::_documentation#in-the-repository\n"
)]
#[doc = links!()]
#[doc = include_str!("../docs/guide.md")]
#[cfg(any(not(doctest), feature = "macros"))] // Its examples use the attribute.
pub mod guide {}

#[doc = links!()]
#[doc = include_str!("../docs/tutorial.md")]
pub mod tutorial {}

#[doc = links!()]
#[doc = include_str!("../docs/guarantees.md")]
pub mod guarantees {}

#[doc = links!()]
#[doc = include_str!("../docs/fencing.md")]
pub mod fencing {}

#[doc = links!()]
#[doc = include_str!("../docs/redis.md")]
pub mod redis {}

// Its subject exists with its feature only.
#[cfg_attr(
    any(feature = "mysql", feature = "postgres"),
    doc = "[SqlTransaction]: crate::SqlTransaction\n"
)]
#[cfg_attr(
    not(any(feature = "mysql", feature = "postgres")),
    doc = "[SqlTransaction]: crate::_documentation#in-the-repository\n"
)]
#[doc = links!()]
#[doc = include_str!("../docs/postgres.md")]
#[cfg(any(not(doctest), feature = "postgres"))] // Its examples use a transaction.
pub mod postgres {}

#[doc = links!()]
#[doc = include_str!("../docs/mysql.md")]
pub mod mysql {}

#[doc = links!()]
#[doc = include_str!("../docs/redisson-compatibility.md")]
pub mod redisson_compatibility {}

#[doc = links!()]
#[doc = include_str!("../docs/metrics.md")]
pub mod metrics {}

#[doc = links!()]
#[doc = include_str!("../docs/operations.md")]
pub mod operations {}

// The module that it is about is there with its feature only.
#[cfg_attr(
    feature = "test-util",
    doc = "
[test_util]: crate::test_util
[test_util::TestControl::go_away]: crate::test_util::TestControl::go_away
[test_util::TestControl::lose]: crate::test_util::TestControl::lose
[test_util::assert_free]: crate::test_util::assert_free
[test_util::assert_held]: crate::test_util::assert_held
[test_util::error]: crate::test_util::error
[test_util::in_memory]: crate::test_util::in_memory
[test_util::of]: crate::test_util::of
"
)]
#[cfg_attr(
    not(feature = "test-util"),
    doc = "
[test_util]: crate::_documentation#in-the-repository
[test_util::TestControl::go_away]: crate::_documentation#in-the-repository
[test_util::TestControl::lose]: crate::_documentation#in-the-repository
[test_util::assert_free]: crate::_documentation#in-the-repository
[test_util::assert_held]: crate::_documentation#in-the-repository
[test_util::error]: crate::_documentation#in-the-repository
[test_util::in_memory]: crate::_documentation#in-the-repository
[test_util::of]: crate::_documentation#in-the-repository
"
)]
#[doc = links!()]
#[doc = include_str!("../docs/testing.md")]
// Its examples use the module and the attribute.
#[cfg(any(not(doctest), all(feature = "macros", feature = "test-util")))]
pub mod testing {}

#[doc = links!()]
#[doc = include_str!("../docs/comparison.md")]
pub mod comparison {}

#[doc = links!()]
#[doc = include_str!("../docs/speed.md")]
pub mod speed {}

#[doc = links!()]
#[doc = include_str!("../docs/measured.md")]
pub mod measured {}

#[doc = links!()]
#[doc = include_str!("../docs/evidence.md")]
pub mod evidence {}

#[doc = links!()]
#[doc = include_str!("../docs/threat-model.md")]
pub mod threat_model {}
