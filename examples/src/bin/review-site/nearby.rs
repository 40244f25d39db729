//! Shops nearby: within 5 km, the nearest first, page by page.
//!
//! `site:shops:places` is a set of places (`GEOADD`): a sorted set whose scores are the cells of a grid.
//!
//! No lock: a place is one command, and so is a search.

use axum::http::StatusCode;

use crate::error::Error;
use crate::site::Redis;

const KEY: &str = "site:shops:places";
pub(crate) const KM: f64 = 5.0;
pub(crate) const PAGE: usize = 10;
/// The last page. A search has no beginning but the nearest shop, so a page costs as much as all before it.
const LAST: usize = 100;

#[derive(Clone)]
pub(crate) struct Nearby {
    pub(crate) redis: Redis,
}

/// A place, in degrees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) longitude: f64,
    pub(crate) latitude: f64,
}

impl Nearby {
    pub(crate) async fn place(&self, shop: i64, at: Place) -> Result<(), Error> {
        let mut add = redis::cmd("GEOADD");
        add.arg(KEY).arg(&checked(at)?).arg(shop);
        Ok(add.exec_async(&mut self.redis.clone()).await?)
    }

    /// Returns a page of shops with their distances in km, the nearest first. The first page is 0.
    pub(crate) async fn page(&self, at: Place, page: usize) -> Result<Vec<(i64, f64)>, Error> {
        if page > LAST {
            return Err(Error::Refused(StatusCode::BAD_REQUEST, "too many pages"));
        }
        let mut search = redis::cmd("GEOSEARCH");
        search.arg(KEY).arg("FROMLONLAT").arg(&checked(at)?);
        search.arg("BYRADIUS").arg(KM).arg("km").arg("ASC");
        search.arg("COUNT").arg((page + 1) * PAGE).arg("WITHDIST");
        let found: Vec<(i64, f64)> = search.query_async(&mut self.redis.clone()).await?;
        Ok(found.into_iter().skip(page * PAGE).collect())
    }
}

/// Returns longitude and latitude, in the order in which Redis wants them.
fn checked(at: Place) -> Result<[f64; 2], Error> {
    // The grid ends before the poles.
    if !(-180.0..=180.0).contains(&at.longitude) || !(-85.0..=85.0).contains(&at.latitude) {
        return Err(Error::Refused(StatusCode::BAD_REQUEST, "no such place"));
    }
    Ok([at.longitude, at.latitude])
}
