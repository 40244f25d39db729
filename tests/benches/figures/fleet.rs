//! The cost to one server of a fleet of processes that hold many locks, computed from the cost of one process.

use std::time::Duration;

use lock_runtime::LockManager;
use tests::{CommandStats, RedisServer};

/// The lease of each lock. A third of it is the cadence of renewals.
const LEASE: Duration = Duration::from_secs(12);
const CADENCES: u32 = 3;
/// The number of processes in the fleet, whose locks have the default lease.
const PROCESSES: f64 = 1_000.0;
const LOCKS: f64 = 10_000.0;
const FLEET_CADENCE: f64 = 10.0;

/// The counters of a server.
struct Counted {
    stats: CommandStats,
    bytes_in: f64,
    bytes_out: f64,
    memory: f64,
    cpu: f64,
}

impl Counted {
    fn of(server: &RedisServer) -> Counted {
        let info: String = server.query(&["INFO", "everything"]);
        let field = |name: &str| {
            let mut lines = info.lines();
            let text = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = text.and_then(|text| text.trim().parse::<f64>().ok());
            number.unwrap_or_else(|| panic!("INFO has no {name}"))
        };
        Counted {
            stats: CommandStats::of(server),
            bytes_in: field("total_net_input_bytes"),
            bytes_out: field("total_net_output_bytes"),
            memory: field("used_memory"),
            cpu: field("used_cpu_user") + field("used_cpu_sys"),
        }
    }

    /// Returns the scripts, the bytes in and out, and the µs of the server's CPU since `before`.
    fn since(&self, before: &Counted) -> [f64; 4] {
        [
            self.stats.since(&before.stats).scripts() as f64,
            self.bytes_in - before.bytes_in,
            self.bytes_out - before.bytes_out,
            (self.cpu - before.cpu) * 1e6,
        ]
    }
}

/// Returns the same numbers for each of `count` operations, without what the counting itself costs.
fn each(server: &RedisServer, before: &Counted, count: f64) -> [f64; 4] {
    let after = Counted::of(server);
    let counting = Counted::of(server).since(&after);
    let all = after.since(before).into_iter().zip(counting);
    let each: Vec<_> = all
        .map(|(all, counting)| (all - counting) / count)
        .collect();
    each.try_into().expect("four of them")
}

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    println!("the server's cost of a renewed lock, of one process that holds so many");
    let mut renewal = [0.0; 4];
    for holds in [10, 100, 1_000, 10_000] {
        renewal = runtime.block_on(one_process(holds));
    }
    let renewals = PROCESSES * LOCKS / FLEET_CADENCE;
    let [scripts, bytes_in, bytes_out, cpu] = renewal.map(|each| each * renewals);
    println!("{PROCESSES} processes that hold {LOCKS} locks each, with leases of 30 s");
    println!("  renewals    {renewals:9.0} /s in {scripts:.0} scripts/s");
    println!(
        "  bandwidth   {:9.1} MB/s in, {:.1} MB/s out",
        bytes_in / 1e6,
        bytes_out / 1e6
    );
    println!("  server CPU  {:9.2} cores", cpu / 1e6);
}

async fn one_process(holds: usize) -> [f64; 4] {
    let server = RedisServer::start();
    let empty = Counted::of(&server);
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..holds {
        let request = locks.mutex(format!("fleet:{number}")).lease(LEASE);
        guards.push(request.acquire().await.unwrap());
    }
    let acquire = each(&server, &empty, holds as f64);
    let memory = (Counted::of(&server).memory - empty.memory) / holds as f64;
    let cadence = LEASE / 3;
    tokio::time::sleep(cadence).await;
    let before = Counted::of(&server);
    tokio::time::sleep(cadence * CADENCES).await;
    let renewal = each(&server, &before, holds as f64 * f64::from(CADENCES));
    assert!(guards.iter().all(|guard| guard.is_held()));
    let clients: String = server.query(&["CLIENT", "LIST"]);
    // One of the clients is the one that asks.
    let connections = clients.lines().count() - 1;
    let listeners = server.subscribers("lock:control:released");
    let before = Counted::of(&server);
    for guard in guards {
        guard.release().await.unwrap();
    }
    let release = each(&server, &before, holds as f64);
    println!(
        "  {holds:6} locks: {connections} connections, {listeners} of them told what all are told; {memory:.0} bytes a lock"
    );
    for (what, [scripts, bytes_in, bytes_out, cpu]) in [
        ("acquire", acquire),
        ("renewal", renewal),
        ("release", release),
    ] {
        println!(
            "    {what}: {scripts:7.4} scripts, {bytes_in:6.1} bytes in, {bytes_out:6.1} out, {cpu:6.2} µs"
        );
    }
    renewal
}
