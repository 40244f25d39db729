//! The baseline: the library's own scripts with nothing around them.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, IntoConnectionInfo, Value};

use crate::scripts::whole;

#[derive(Clone)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
}

impl Bare {
    /// Connects with the same settings as the library.
    pub(crate) async fn connect(url: &str) -> Bare {
        let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let info = url.into_connection_info().unwrap().set_tcp_settings(tcp);
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        let mut connection = redis::Client::open(info)
            .unwrap()
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .unwrap();
        let mut hashes = Vec::new();
        for script in ["acquire", "release"] {
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(whole(script)).take();
            let hash: String = load.query_async(&mut connection).await.unwrap();
            hashes.push(hash);
        }
        let release = hashes.pop().unwrap();
        let acquire = hashes.pop().unwrap();
        Bare {
            connection,
            acquire,
            release,
        }
    }

    /// Acquires and releases, with arguments that were made before.
    pub(crate) async fn cycle(&mut self, key: &BareKey) {
        let mut acquire = Cmd::with_capacity(8, 256);
        acquire
            .arg("EVALSHA")
            .arg(&self.acquire)
            .arg(2)
            .arg(&key.lock)
            .arg(&key.fence);
        acquire.arg(&key.holder).arg(30_000);
        acquire.arg("9007199254740991").arg(0);
        let reply = self.connection.send_packed_command(&acquire).await.unwrap();
        assert!(matches!(reply, Value::BulkString(_)), "{reply:?}");
        let mut release = Cmd::with_capacity(8, 256);
        release
            .arg("EVALSHA")
            .arg(&self.release)
            .arg(1)
            .arg(&key.lock);
        release.arg(&key.holder).arg(&key.channel);
        let reply = self.connection.send_packed_command(&release).await.unwrap();
        assert_eq!(reply, Value::Int(1));
    }
}

pub(crate) struct BareKey {
    lock: String,
    fence: String,
    channel: String,
    holder: String,
}

impl BareKey {
    pub(crate) fn new(name: &str) -> BareKey {
        let lock = format!("lock:bare:{name}");
        BareKey {
            fence: "lock:fence:{1}".to_owned(),
            channel: format!("redisson_lock__channel:{{{lock}}}"),
            lock,
            holder: "0b1f4dc0-6a3e-4c0e-9e57-4f9a4b1c7a11:1".to_owned(),
        }
    }
}
