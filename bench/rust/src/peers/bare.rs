//! The floor: two small scripts with no library around them. They cannot wait, so this peer is only for tasks that have
//! keys of their own.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::{LEASE, Lock, Peer};

const ACQUIRE: &str = "
if redis.call('exists', KEYS[1]) == 1 then return 0 end
redis.call('hset', KEYS[1], ARGV[1], 1)
redis.call('pexpire', KEYS[1], ARGV[2])
return 1";

const RELEASE: &str = "
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
return redis.call('del', KEYS[1])";

pub(crate) struct Bare {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
}

impl Bare {
    pub(crate) async fn connect(url: &str) -> Bare {
        let info: redis::ConnectionInfo = url.parse().expect("a URL");
        // Without this, the client's system holds small messages back until the ones before are confirmed.
        let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let client = redis::Client::open(info.set_tcp_settings(tcp)).expect("a client");
        let mut connection = client
            .get_multiplexed_async_connection()
            .await
            .expect("a connection");
        let mut load = async |script| {
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(script).take();
            load.query_async(&mut connection).await.expect("a hash")
        };
        let (acquire, release) = (load(ACQUIRE).await, load(RELEASE).await);
        Bare {
            connection,
            acquire,
            release,
        }
    }
}

impl Peer for Bare {
    type Lock = Key;

    fn lock(&self, key: &str) -> Key {
        let lease = LEASE.as_millis().to_string();
        let [mut acquire, mut release] = [&self.acquire, &self.release].map(|script| {
            let mut call = redis::cmd("EVALSHA");
            call.arg(script).arg(1).arg(key).arg("holder");
            call
        });
        acquire.arg(lease);
        release.arg("");
        Key {
            connection: self.connection.clone(),
            acquire,
            release,
        }
    }
}

pub(crate) struct Key {
    connection: MultiplexedConnection,
    acquire: Cmd,
    release: Cmd,
}

impl Lock for Key {
    type Guard = ();

    async fn acquire(&mut self) {
        let reply = self.connection.send_packed_command(&self.acquire).await;
        assert_eq!(
            reply.expect("a reply"),
            Value::Int(1),
            "the bare scripts cannot wait"
        );
    }

    async fn release(&mut self, (): ()) {
        let reply = self.connection.send_packed_command(&self.release).await;
        assert_eq!(reply.expect("a reply"), Value::Int(1));
    }
}
