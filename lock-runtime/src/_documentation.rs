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

/// Makes a module of each page. `links.txt` says where its links lead in this documentation. In the repository they lead to
/// files: each page ends with the same labels. The first definition of a label counts, so `links.txt` comes before the page.
/// What exists with a feature only is defined before both, because `links.txt` says where it leads without the feature.
macro_rules! pages {
    ($($(#[$about:meta])* $page:ident = $file:literal;)*) => {$(
        $(#[$about])*
        #[doc = include_str!("links.txt")]
        #[doc = include_str!($file)]
        pub mod $page {}
    )*};
}

pages! {
    #[cfg_attr(feature = "macros", doc = "[attribute]: macro@crate::distributed_lock\n")]
    #[cfg(any(not(doctest), feature = "macros"))] // Its examples use the attribute.
    guide = "../docs/guide.md";
    tutorial = "../docs/tutorial.md";
    guarantees = "../docs/guarantees.md";
    fencing = "../docs/fencing.md";
    redis = "../docs/redis.md";
    #[cfg_attr(
        any(feature = "mysql", feature = "postgres"),
        doc = "[SqlTransaction]: crate::SqlTransaction\n"
    )]
    #[cfg(any(not(doctest), feature = "postgres"))] // Its examples use a transaction.
    postgres = "../docs/postgres.md";
    mysql = "../docs/mysql.md";
    redisson_compatibility = "../docs/redisson-compatibility.md";
    metrics = "../docs/metrics.md";
    operations = "../docs/operations.md";
    #[cfg_attr(feature = "test-util", doc = "
[test_util]: crate::test_util
[test_util::TestControl::go_away]: crate::test_util::TestControl::go_away
[test_util::TestControl::lose]: crate::test_util::TestControl::lose
[test_util::assert_free]: crate::test_util::assert_free
[test_util::assert_held]: crate::test_util::assert_held
[test_util::error]: crate::test_util::error
[test_util::in_memory]: crate::test_util::in_memory
[test_util::of]: crate::test_util::of
")]
    // Its examples use the module and the attribute.
    #[cfg(any(not(doctest), all(feature = "macros", feature = "test-util")))]
    testing = "../docs/testing.md";
    comparison = "../docs/comparison.md";
    speed = "../docs/speed.md";
    measured = "../docs/measured.md";
    evidence = "../docs/evidence.md";
    threat_model = "../docs/threat-model.md";
}
