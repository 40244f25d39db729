//! A master with replicas, and sentinels that fail over in a second or two.

use std::process::Command;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, RedisResult, Value};

use crate::conf::ServerConf;
use crate::eventually::eventually;
use crate::launch::{Kind, Server, directory_in};
use crate::ports::free_port;
use crate::server::{MISSING, RedisServer, binary};

/// The name by which the sentinels know the master.
pub const SERVICE: &str = "mine";

const DOWN_AFTER: &str = "down-after-milliseconds";
const WANTS_CERTIFICATES: &str = "tls-auth-clients yes";
/// The silence after which a master is replaced, where none is to be. No busy machine lets one stand still for an hour.
const FOR_EVER_MS: u64 = 3_600_000;
/// Only a failover that hangs takes longer.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(180);
/// Only a sentinel that hangs takes longer to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The settings of a [`SentinelGroup`].
#[derive(Debug, Clone)]
pub struct SentinelConf {
    replicas: usize,
    sentinels: usize,
    password: Option<String>,
    sentinel_password: Option<String>,
    tls: bool,
    /// Whether the sentinels tell the master's plain port all the same.
    plain_master: bool,
    client_certificates: bool,
    client_user: Option<String>,
    min_replicas: Option<usize>,
    /// The time after which a silent master counts as down.
    down_after_ms: u64,
}

impl SentinelConf {
    /// Keeps the sentinels from ever replacing the master, however long a busy machine lets it stand still.
    #[must_use]
    pub fn steady(mut self) -> Self {
        self.down_after_ms = FOR_EVER_MS;
        self
    }

    /// Sets the servers' password. Replicas and sentinels know it.
    #[must_use]
    pub fn requirepass(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Sets the password of the sentinels themselves.
    #[must_use]
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_password = Some(password.to_owned());
        self
    }

    /// Makes the master and the sentinels take TLS as well, with the master's [`RedisServer::tls_files`]. The sentinels
    /// tell its TLS port. This is for a master without replicas.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Turns TLS on, and makes the sentinels tell the master's plain port.
    #[must_use]
    pub fn plain_master(mut self) -> Self {
        self.plain_master = true;
        self.tls()
    }

    /// Turns TLS on, and makes clients show a certificate of the same authority.
    #[must_use]
    pub fn client_certificates(mut self) -> Self {
        self.client_certificates = true;
        self.tls()
    }

    /// Adds a user for clients alone, with any password. If the default user is switched off, sentinels and replicas
    /// are cut off, and clients are not.
    #[must_use]
    pub fn client_user(mut self, user: &str) -> Self {
        self.client_user = Some(user.to_owned());
        self
    }

    /// Makes masters take writes only while this many replicas have answered within the last second.
    #[must_use]
    pub fn min_replicas_to_write(mut self, replicas: usize) -> Self {
        self.min_replicas = Some(replicas);
        self
    }

    /// Starts all of them and waits until everybody knows everybody.
    pub async fn start(self) -> SentinelGroup {
        SentinelGroup::launch(self).await
    }
}

/// The servers and sentinels of one service. All of them end with this value.
#[derive(Debug)]
pub struct SentinelGroup {
    /// The first one starts as the master.
    pub servers: Vec<RedisServer>,
    /// The sentinels that watch the servers.
    pub sentinels: Vec<Sentinel>,
}

impl SentinelGroup {
    /// Returns settings for a group with this many replicas and sentinels.
    pub fn builder(replicas: usize, sentinels: usize) -> SentinelConf {
        SentinelConf {
            replicas,
            sentinels,
            password: None,
            sentinel_password: None,
            tls: false,
            plain_master: false,
            client_certificates: false,
            client_user: None,
            min_replicas: None,
            down_after_ms: 2_000,
        }
    }

    /// Starts one replica, and one sentinel that needs nobody's vote: several could split their votes, and would try
    /// again only after seconds.
    pub async fn start() -> Self {
        Self::builder(1, 1).start().await
    }

    async fn launch(conf: SentinelConf) -> Self {
        let server = || {
            let settings = RedisServer::builder().line("repl-diskless-sync-delay 0");
            let settings = if conf.tls { settings.tls() } else { settings };
            let settings = match conf.client_certificates {
                true => settings.line(WANTS_CERTIFICATES),
                false => settings,
            };
            let settings = match &conf.client_user {
                None => settings,
                Some(user) => settings.user(user, "on nopass ~* &* +@all"),
            };
            let settings = match conf.min_replicas {
                None => settings,
                Some(number) => settings
                    .line(format!("min-replicas-to-write {number}"))
                    .line("min-replicas-max-lag 1"),
            };
            match &conf.password {
                None => settings,
                Some(password) => settings
                    .requirepass(password)
                    .line(format!("masterauth {password}")),
            }
        };
        let servers = replicated(server, conf.replicas).await;
        let sentinels = (0..conf.sentinels)
            .map(|_| Sentinel::of(&conf, &servers[0]))
            .collect();
        let group = Self { servers, sentinels };
        eventually("the sentinels know all there is", async || {
            group.sentinels.iter().all(|sentinel| {
                let told = |field: &str| sentinel.told(field);
                told("num-slaves") == conf.replicas.to_string()
                    && told("num-other-sentinels") == (conf.sentinels - 1).to_string()
                    && told("flags") == "master"
            })
        })
        .await;
        group
    }

    /// Returns `redis-sentinel://…` without logins.
    pub fn url(&self) -> String {
        self.url_with("", "")
    }

    /// Returns `rediss-sentinel://…`, by names that the certificate holds.
    pub fn tls_url(&self) -> String {
        let port = |sentinel: &Sentinel| format!("localhost:{}", sentinel.kind.tls_port);
        let hosts: Vec<_> = self.sentinels.iter().map(port).collect();
        format!("rediss-sentinel://{}/{SERVICE}", hosts.join(","))
    }

    /// Returns a URL with the text before the hosts (`user:password@`) and the text after the service (`/database?…`).
    pub fn url_with(&self, login: &str, rest: &str) -> String {
        let addr = |sentinel: &Sentinel| sentinel.addr().to_string();
        let hosts: Vec<_> = self.sentinels.iter().map(addr).collect();
        format!(
            "redis-sentinel://{login}{}/{SERVICE}{rest}",
            hosts.join(",")
        )
    }

    /// Returns the index of the server that most sentinels call the master.
    pub fn master(&self) -> usize {
        let named: Vec<usize> = self
            .sentinels
            .iter()
            .filter_map(|sentinel| {
                let port = sentinel.master_port()?;
                self.servers.iter().position(|server| server.port() == port)
            })
            .collect();
        let votes = |index: usize| named.iter().filter(|named| **named == index).count();
        (0..self.servers.len())
            .max_by_key(|index| votes(*index))
            .expect("there are servers")
    }

    /// Waits until all sentinels name another master than this one. Returns the index of the new one, which stays the master,
    /// as in a [`steady`](SentinelConf::steady) group.
    pub async fn moved_from(&self, old: usize) -> usize {
        let port = self.servers[old].port();
        let has_moved =
            |sentinel: &Sentinel| sentinel.master_port().is_some_and(|named| named != port);
        let deadline = Instant::now() + FAILOVER_TIMEOUT;
        while !self.sentinels.iter().all(has_moved) {
            let logs: Vec<_> = self.sentinels.iter().map(Sentinel::log).collect();
            assert!(
                Instant::now() < deadline,
                "no failover within {FAILOVER_TIMEOUT:?}\n{}",
                logs.join("\n")
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let for_ever = FOR_EVER_MS.to_string();
        let stays = ["SENTINEL", "SET", SERVICE, DOWN_AFTER, &for_ever];
        for sentinel in &self.sentinels {
            sentinel.command(&stays).expect("a sentinel takes settings");
        }
        self.master()
    }

    /// Runs `SENTINEL FAILOVER`. The old master lives, and takes writes for some seconds more. Returns the new one's
    /// index.
    pub async fn failover(&self) -> usize {
        let (old, sentinel) = (self.master(), &self.sentinels[0]);
        let port = self.servers[old].port();
        // On a busy machine, no replica may be good at the moment. The sentinel then gives up, and is told again.
        let given_up = || sentinel.log().matches("-failover-abort").count();
        let mut begun = given_up();
        let before = begun;
        eventually("the sentinel moves the master", async || {
            if given_up() == begun {
                let failover = sentinel.command(&["SENTINEL", "FAILOVER", SERVICE]);
                begun += usize::from(failover.is_ok());
            }
            begun > before && sentinel.master_port().is_some_and(|named| named != port)
        })
        .await;
        self.moved_from(old).await
    }

    /// Returns whether none of these servers has a key that should be gone.
    pub fn is_clean(&self, alive: &[usize]) -> bool {
        alive
            .iter()
            .all(|index| self.servers[*index].stray_keys().is_empty())
    }
}

/// Starts a master and its replicas, and waits until they are in step with it. The master is the first one.
pub async fn replicated(conf: impl Fn() -> ServerConf, replicas: usize) -> Vec<RedisServer> {
    let mut servers = vec![conf().start()];
    for _ in 0..replicas {
        let of = format!("replicaof 127.0.0.1 {}", servers[0].port());
        servers.push(conf().line(of).start());
    }
    // A replica that has its data is sent later writes only after it has said so, up to a second later. A master that
    // wants replicas may refuse until they are there.
    eventually("what is written reaches the replicas", async || {
        servers[0].command(&["SET", "probe", "1"]).is_ok()
            && servers[1..].iter().all(|server| server.exists("probe"))
    })
    .await;
    eventually("it is gone from there", async || {
        servers[0].command(&["DEL", "probe"]).is_ok()
            && !servers[1..].iter().any(|server| server.exists("probe"))
    })
    .await;
    servers
}

/// The settings that a [`Sentinel`] is started with.
#[derive(Debug)]
pub struct Watch {
    tls_port: u16,
    takes_tls: bool,
    password: Option<String>,
    /// The lines of its configuration that contain none of its own ports. The first one names the master.
    lines: Vec<String>,
}

/// One sentinel process.
pub type Sentinel = Server<Watch>;

impl Sentinel {
    fn of(conf: &SentinelConf, master: &RedisServer) -> Self {
        let quorum = conf.sentinels / 2 + 1;
        let watched = match conf.tls && !conf.plain_master {
            true => master.tls_port(),
            false => master.port(),
        };
        let mut lines = vec![
            format!("sentinel monitor {SERVICE} 127.0.0.1 {watched} {quorum}"),
            format!("sentinel {DOWN_AFTER} {SERVICE} {}", conf.down_after_ms),
            format!("sentinel failover-timeout {SERVICE} 3000"),
        ];
        if let Some(password) = &conf.password {
            lines.push(format!("sentinel auth-pass {SERVICE} {password}"));
        }
        if let Some(password) = &conf.sentinel_password {
            lines.push(format!("requirepass {password}"));
            lines.push(format!("sentinel sentinel-pass {password}"));
        }
        if conf.tls {
            if !conf.plain_master {
                lines.push("tls-replication yes".to_owned());
            }
            lines.extend(master.tls_files().conf());
            if conf.client_certificates {
                lines.push(WANTS_CERTIFICATES.to_owned());
            }
        }
        let watch = Watch {
            tls_port: 0,
            takes_tls: conf.tls,
            password: conf.sentinel_password.clone(),
            lines,
        };
        Self::launch(watch, directory_in(&std::env::temp_dir()))
    }

    /// Returns the port on which it says that the master is.
    pub fn master_port(&self) -> Option<u16> {
        let reply = self.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]);
        let (_, port): (String, u16) = redis::from_redis_value(reply.ok()?).ok()?;
        Some(port)
    }

    /// Starts it again with a blank state: it knows this master, no other sentinel and no failover.
    pub fn set_up_anew(&mut self, master: &RedisServer) {
        let port = master.port();
        self.kind.lines[0] = format!("sentinel monitor {SERVICE} 127.0.0.1 {port} 1");
        self.start_again();
    }

    /// Runs a command on a connection of its own.
    ///
    /// # Errors
    /// The sentinel's error, or that it cannot be reached.
    pub fn command(&self, args: &[&str]) -> RedisResult<Value> {
        let login = self
            .kind
            .password
            .as_ref()
            .map(|password| format!(":{password}@"));
        let url = format!("redis://{}{}/", login.unwrap_or_default(), self.addr());
        let mut connection = redis::Client::open(url)?.get_connection_with_timeout(CALL_TIMEOUT)?;
        connection.set_read_timeout(Some(CALL_TIMEOUT))?;
        redis::cmd(args[0]).arg(&args[1..]).query(&mut connection)
    }

    fn told(&self, field: &str) -> String {
        let Ok(reply) = self.command(&["SENTINEL", "MASTER", SERVICE]) else {
            return String::new();
        };
        let all = std::collections::HashMap::<String, String>::from_redis_value(reply);
        all.ok()
            .and_then(|mut all| all.remove(field))
            .unwrap_or_default()
    }
}

impl Kind for Watch {
    const NAME: &'static str = "sentinel";
    const MISSING: &'static str = MISSING;

    fn draw_ports(&mut self) {
        self.tls_port = free_port();
    }

    fn command(sentinel: &Sentinel) -> Command {
        let mut lines = vec![
            format!("port {}", sentinel.port()),
            "bind 127.0.0.1".to_owned(),
            format!("dir {}", sentinel.dir().display()),
            format!("logfile {}", sentinel.path("log").display()),
        ];
        if sentinel.kind.takes_tls {
            lines.push(format!("tls-port {}", sentinel.kind.tls_port));
        }
        lines.extend(sentinel.kind.lines.iter().cloned());
        let path = sentinel.path("sentinel.conf");
        std::fs::write(&path, lines.join("\n") + "\n").expect("write sentinel.conf");
        let mut command = Command::new(binary());
        command.arg(path).arg("--sentinel");
        command
    }

    /// Returns whether it answers. Also shortens its periods, because tests are short. The leader of a failover looks
    /// at a replica once a second. Five ping periods must be longer than that, or the leader knows no good replica. So
    /// must four publish periods, or the other sentinels make the new master a replica again. A sentinel that has stood still
    /// for two seconds does nothing for a while after that: for half a minute by default.
    fn answers(sentinel: &Sentinel) -> bool {
        let hurry = [
            "SENTINEL",
            "DEBUG",
            "info-period",
            "200",
            "publish-period",
            "500",
            "ping-period",
            "300",
            "ask-period",
            "100",
            "tilt-period",
            "1000",
        ];
        sentinel.command(&hurry).is_ok()
    }
}
