//! Faults of a master that sentinels watch. What it had not replicated is lost with it.

use std::ops::Range;
use std::time::{Duration, Instant};

use redis::Value;
use tests::Data;
use tests::history::now_ns;

use super::{Fault, Scene, Side, proven};
use crate::replicated::Replicated;
use crate::site::Topology;

/// Returns the faults of this file. `guarded` is for the topology of that name.
pub(super) fn all(guarded: bool) -> Vec<Box<dyn Fault>> {
    [How::Killed, How::Frozen, How::ByHand, How::CutOff]
        .into_iter()
        .map(|how| {
            Box::new(Deposed {
                how,
                guarded,
                old: 0,
                answered: None,
                ordered: None,
            }) as Box<dyn Fault>
        })
        .chain([
            Box::new(ReplicaKilled { replica: 0 }) as Box<dyn Fault>,
            Box::new(SentinelAway { before: 0 }),
        ])
        .collect()
}

/// The fate of the old master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// SIGKILL. It comes back empty, as a replica.
    Killed,
    /// SIGSTOP until there is another master. It wakes up and still believes that it is the master.
    Frozen,
    /// `SENTINEL FAILOVER`. It lives and answers until it is told.
    ByHand,
    /// Sentinel and replica do not reach it, and one client does not reach the sentinel: there are two masters.
    CutOff,
}

/// Another server becomes the master.
struct Deposed {
    how: How,
    guarded: bool,
    old: usize,
    answered: Option<u64>,
    ordered: Option<Instant>,
}

impl Deposed {
    /// Returns whether locks outlive it: see `Replicated::guarded`. They do not if the old master still has a replica
    /// after another one was promoted: that replica then vouches for both.
    fn is_survived(&self) -> bool {
        self.guarded && self.how != How::ByHand
    }

    /// Orders a failover, at most once a second. A sentinel that has not looked at the replica since the last failover
    /// refuses, so this is called again.
    fn order(&mut self, site: &Replicated) {
        if self
            .ordered
            .is_none_or(|at| at.elapsed() > Duration::from_secs(1))
        {
            self.ordered = Some(Instant::now());
            let failover = ["SENTINEL", "FAILOVER", tests::sentinel::SERVICE];
            let _ = site.group.sentinels[0].command(&failover);
        }
    }
}

impl Fault for Deposed {
    fn name(&self) -> &'static str {
        match self.how {
            How::Killed => "master-killed",
            How::Frozen => "master-frozen",
            How::ByHand => "failover-by-hand",
            How::CutOff => "master-cut-off",
        }
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn loses_locks(&self, _topology: Topology) -> bool {
        !self.is_survived()
    }

    fn fails_over(&self) -> bool {
        true
    }

    fn splits(&self) -> bool {
        self.how != How::Killed && !self.is_survived()
    }

    fn lasts(&self) -> Range<u64> {
        match self.how {
            How::Killed | How::Frozen => 1_300..2_300,
            How::ByHand => 1_500..2_500,
            How::CutOff => 2_000..3_500,
        }
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        let site = scene.site.replicated();
        self.old = site.master;
        (self.answered, self.ordered) = (None, None);
        match self.how {
            How::Killed => site.group.servers[self.old].kill9(),
            How::Frozen => site.group.servers[self.old].sigstop(),
            How::ByHand => self.order(site),
            How::CutOff => {
                site.proxies[0].go_down();
                site.cut_off(self.old, true);
            }
        }
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        let site = scene.site.replicated();
        if self.answered.is_none()
            && let Some(new) = site.moved_to()
        {
            self.answered = Some(now_ns());
            site.master = new;
        }
        if self.answered.is_none() && self.how == How::ByHand {
            self.order(site);
        }
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let site = scene.site.replicated();
        if self.answered.is_none() {
            site.follow()?;
            self.answered = Some(now_ns());
        }
        match self.how {
            How::Killed => site.group.servers[self.old].restart(Data::Lost),
            How::Frozen => site.group.servers[self.old].sigcont(),
            How::ByHand => {}
            How::CutOff => {
                site.cut_off(self.old, false);
                site.proxies[0].refuse(false);
            }
        }
        site.wait_in_step()?;
        let (old, new) = (self.old, site.master);
        proven(old != new, format!("server {new} after {old}"))
    }

    fn answered(&self) -> Option<u64> {
        self.answered
    }
}

/// The replica dies and comes back, and nobody should notice.
struct ReplicaKilled {
    replica: usize,
}

impl Fault for ReplicaKilled {
    fn name(&self) -> &'static str {
        "replica-killed"
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn lasts(&self) -> Range<u64> {
        50..1_000
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        let site = scene.site.replicated();
        let replicas: Vec<usize> = site.others().collect();
        self.replica = replicas[scene.rng.usize(..replicas.len())];
        site.group.servers[self.replica].kill9();
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let site = scene.site.replicated();
        let info: String = site.master().query(&["INFO", "replication"]);
        let left = site.others().count() - 1;
        let fewer = info.contains(&format!("connected_slaves:{left}"));
        site.group.servers[self.replica].restart(Data::Kept);
        follow_again(site, self.replica);
        site.wait_in_step()?;
        proven(fewer, format!("the master had {left} replicas: {fewer}"))
    }
}

/// Makes a replica follow the master. It may have been configured as the master before.
fn follow_again(site: &Replicated, replica: usize) {
    let port = site.master().port().to_string();
    let server = &site.group.servers[replica];
    let _: Value = server.query(&["REPLICAOF", "127.0.0.1", &port]);
}

/// Nobody reaches the sentinel for a while.
struct SentinelAway {
    before: usize,
}

impl Fault for SentinelAway {
    fn name(&self) -> &'static str {
        "sentinel-away"
    }

    fn side(&self) -> Side {
        Side::Network
    }

    fn lasts(&self) -> Range<u64> {
        1_200..2_200
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        self.before = 0;
        self.tick(scene);
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        // Clients that were told to go a moment ago are not back at once.
        if self.before == 0 {
            let proxies = &scene.site.replicated().proxies;
            self.before = proxies.iter().map(|proxy| proxy.open_connections()).sum();
            if self.before > 0 {
                proxies.iter().for_each(|proxy| proxy.go_down());
            }
        }
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        for proxy in &scene.site.replicated().proxies {
            proxy.refuse(false);
        }
        proven(self.before > 0, format!("{} cut", self.before))
    }
}
