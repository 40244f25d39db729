//! A Redis server of this program's own, for when `LOCK_URL` names none.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use examples::Failure;

const PATIENCE: Duration = Duration::from_secs(30);

/// A server that listens on a socket in a directory. It ends with this value, and with this process, however that ends.
pub(crate) struct RedisServer {
    shell: Child,
    pub(crate) url: String,
}

impl RedisServer {
    /// Starts `redis-server`, or the program that `REDIS_SERVER_BIN` names.
    pub(crate) async fn start(directory: &Path) -> Result<RedisServer, Failure> {
        let program = env::var_os("REDIS_SERVER_BIN").unwrap_or_else(|| "redis-server".into());
        let version = Command::new(&program).arg("--version").output();
        if let Err(error) = version {
            let program = program.display();
            return Err(format!(
                "LOCK_URL names no Redis server, and none can be started ({program}: {error}): install one \
                 (`apt-get install redis-server`, `brew install redis`), or name its binary in REDIS_SERVER_BIN"
            )
            .into());
        }
        let socket = directory.join("redis.sock");
        // The shell reads a pipe that nobody writes to. It closes when this process ends, and then the server ends.
        let shell = Command::new("sh")
            .args(["-c", r#""$0" "$@" & cat; kill "$!"; wait"#])
            .arg(program)
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(directory)
            .arg("--unixsocket")
            .arg(&socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        let url = format!("redis+unix://{}", socket.display());
        let server = RedisServer { shell, url };
        let client = redis::Client::open(server.url.as_str())?;
        let started = Instant::now();
        while let Err(error) = client.get_multiplexed_async_connection().await {
            if started.elapsed() > PATIENCE {
                return Err(format!("the Redis server does not answer: {error}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(server)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
