//! The site: what every process of it has, and the place where it lives.

use std::path::{Path, PathBuf};
use std::time::Duration;

use examples::{Failure, Sqlite, Store};
use lock_runtime::{Ids, LockManager};
use redis::AsyncCommands;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use tempfile::TempDir;

use crate::bloom::Bloom;
use crate::check_ins::CheckIns;
use crate::feed::Feed;
use crate::follows::Follows;
use crate::likes::Likes;
use crate::lock_view::LockView;
use crate::nearby::{Nearby, Place};
use crate::redis_server::RedisServer;
use crate::reviews::Reviews;
use crate::sale_fenced::FencedSale;
use crate::sale_locked::LockedSale;
use crate::sale_stream::StreamSale;
use crate::shop_cache::{Shop, Shops};
use crate::sign_in::SignIn;
use crate::visitors::Visitors;
use crate::{ids, reviews, sale, sale_fenced, sale_locked, sale_stream, shop_cache, sign_in};

/// A connection that opens itself again. Clones share it.
pub(crate) type Redis = ConnectionManager;

/// More than the client's half a second: the program may share its machine with a compiler.
const PATIENCE: Duration = Duration::from_secs(30);

/// The pieces that each sale has.
pub(crate) const STOCK: i64 = 100;
pub(crate) const SHOPS: i64 = 200;
pub(crate) const CENTRE: Place = Place {
    longitude: 13.4,
    latitude: 52.5,
};

/// On the sphere that Redis measures on.
const KM_PER_DEGREE: f64 = 111.226;

/// What a process has. Clones share it.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) redis: Redis,
    pub(crate) database: Sqlite,
    pub(crate) locks: LockManager,
    pub(crate) lock_view: LockView,
    pub(crate) sign_in: SignIn,
    pub(crate) shops: Shops,
    pub(crate) orders: Ids,
    pub(crate) locked_sale: LockedSale,
    pub(crate) fenced_sale: FencedSale,
    pub(crate) stream_sale: StreamSale,
    pub(crate) reviews: Reviews,
    pub(crate) likes: Likes,
    pub(crate) follows: Follows,
    pub(crate) feed: Feed,
    pub(crate) nearby: Nearby,
    pub(crate) check_ins: CheckIns,
    pub(crate) visitors: Visitors,
}

impl Site {
    pub(crate) async fn open(store: &Store, database: &Path) -> Result<Site, Failure> {
        let locks = store.connect().await?;
        let redis = connect(store).await?;
        let database = Sqlite::open(database);
        let orders = ids::orders(&locks);
        let follows = Follows {
            redis: redis.clone(),
        };
        let feed = Feed {
            redis: redis.clone(),
        };
        Ok(Site {
            lock_view: LockView {
                redis: redis.clone(),
                locks: locks.clone(),
            },
            sign_in: SignIn {
                redis: redis.clone(),
                database: database.clone(),
                ids: ids::users(&locks),
            },
            shops: Shops {
                redis: redis.clone(),
                database: database.clone(),
                locks: locks.clone(),
                bloom: Bloom {
                    redis: redis.clone(),
                    key: "site:shops:bloom",
                },
                queries: <_>::default(),
            },
            locked_sale: LockedSale {
                database: database.clone(),
                locks: locks.clone(),
                ids: orders.clone(),
                payments: <_>::default(),
            },
            fenced_sale: FencedSale {
                database: database.clone(),
                locks: locks.clone(),
                ids: orders.clone(),
            },
            stream_sale: StreamSale {
                redis: redis.clone(),
                database: database.clone(),
                locks: locks.clone(),
                ids: orders.clone(),
            },
            reviews: Reviews {
                database: database.clone(),
                ids: ids::reviews(&locks),
                follows: follows.clone(),
                feed: feed.clone(),
            },
            likes: Likes {
                redis: redis.clone(),
            },
            nearby: Nearby {
                redis: redis.clone(),
            },
            check_ins: CheckIns {
                redis: redis.clone(),
            },
            visitors: Visitors {
                redis: redis.clone(),
            },
            orders,
            follows,
            feed,
            redis,
            database,
            locks,
        })
    }
}

/// Opens a connection for the site's data.
pub(crate) async fn connect(store: &Store) -> Result<Redis, Failure> {
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = redis::Client::open(store.url())?;
    Ok(ConnectionManager::new_with_config(client, config).await?)
}

/// The place where a site lives: a Redis server, and a directory with the database. What the site wrote there goes with
/// this value, except the locks' fences.
pub(crate) struct Home {
    pub(crate) store: Store,
    pub(crate) database: PathBuf,
    // In this order: the server ends before its directory is removed.
    _server: Option<RedisServer>,
    _directory: TempDir,
}

impl Home {
    /// Makes a new site, with shops and sales, at the server of `LOCK_URL` or on one of its own.
    pub(crate) async fn create() -> Result<Home, Failure> {
        let directory = tempfile::Builder::new().prefix("review-site").tempdir()?;
        let mut store = Store::from_env();
        let mut server = None;
        if store.is_default() {
            let started = RedisServer::start(directory.path()).await?;
            store = Store::new(&started.url);
            server = Some(started);
        }
        if let Err(why) = redis::Client::open(store.url()) {
            return Err(format!(
                "the site lives on one Redis server, LOCK_URL={store} is none: {why}"
            )
            .into());
        }
        let database = directory.path().join("site.sqlite");
        let schemas = [
            sign_in::SCHEMA,
            shop_cache::SCHEMA,
            reviews::SCHEMA,
            sale::SCHEMA,
            sale_fenced::SCHEMA,
            sale_stream::SCHEMA,
        ];
        Sqlite::create(&database, &schemas.concat()).await?;
        let site = Site::open(&store, &database).await?;
        if let Some(key) = keys(&site.redis).await?.first() {
            return Err(format!(
                "LOCK_URL={store} has the keys of a site already, such as `{key}`. Name another database of the server \
                 (redis://127.0.0.1/1), or remove `site:*` if no site uses them"
            )
            .into());
        }
        let home = Home {
            store,
            database,
            _server: server,
            _directory: directory,
        };
        let furnished = site.furnish().await;
        site.locks.shutdown().await;
        if furnished.is_err() {
            home.clear().await?;
        }
        furnished.map(|()| home)
    }

    /// Removes what the site wrote to Redis.
    pub(crate) async fn clear(&self) -> Result<(), Failure> {
        let mut redis = connect(&self.store).await?;
        for some in keys(&redis).await?.chunks(500) {
            let () = redis.unlink(some).await?;
        }
        Ok(())
    }
}

/// The keys of the site, and those of the library's ids.
async fn keys(redis: &Redis) -> Result<Vec<String>, Failure> {
    let mut redis = redis.clone();
    let mut keys = vec![];
    for pattern in ["site:*".to_owned(), format!("lock:{}*", ids::PREFIX)] {
        let mut found = redis.scan_match::<_, String>(pattern).await?;
        while let Some(key) = found.next_item().await {
            keys.push(key?);
        }
    }
    Ok(keys)
}

impl Site {
    async fn furnish(&self) -> Result<(), Failure> {
        self.database
            .transaction(|it| {
                let mut sale = it.prepare("INSERT INTO sales VALUES (?1, ?2)")?;
                for name in [sale_locked::SALE, sale_fenced::SALE, sale_stream::SALE] {
                    sale.execute((name, STOCK))?;
                }
                Ok(())
            })
            .await?;
        for id in 1..=SHOPS {
            let name = format!("Shop {id}");
            self.shops.write(Shop { id, name }).await?.await??;
            // On a spiral, about 50 m further each: up to 10 km.
            let (angle, way) = (id as f64, id as f64 * 0.05 / KM_PER_DEGREE);
            let at = Place {
                longitude: CENTRE.longitude
                    + way * angle.cos() / CENTRE.latitude.to_radians().cos(),
                latitude: CENTRE.latitude + way * angle.sin(),
            };
            self.nearby.place(id, at).await?;
        }
        self.shops.bloom.complete().await?;
        Ok(self.stream_sale.open().await?)
    }
}
