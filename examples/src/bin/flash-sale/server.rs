//! The service over HTTP: `POST /coupons/{coupon}/orders/{user}`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::sale::{Refusal, Sale};

/// A server that runs in this process. It stops when it is dropped; `stop` also waits for it.
pub(crate) struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

impl Server {
    /// Listens on a free port of the loopback interface.
    pub(crate) async fn start(sale: Sale, locked: bool) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let server = axum::serve(listener, router(sale, locked)).with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let task = tokio::spawn(server.into_future());
        Ok(Server {
            address,
            stop,
            task,
        })
    }

    /// Returns the URL at which clients reach it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Finishes the requests under way, and then ends.
    pub(crate) async fn stop(self) -> io::Result<()> {
        drop(self.stop);
        self.task.await?
    }
}

fn router(sale: Sale, locked: bool) -> Router {
    let method = if locked {
        post(buy)
    } else {
        post(buy_unlocked)
    };
    Router::new()
        .route("/coupons/{coupon}/orders/{user}", method)
        .with_state(sale)
}

async fn buy(
    State(sale): State<Sale>,
    Path((coupon, user)): Path<(String, u32)>,
) -> Result<(StatusCode, String), Refusal> {
    let order = sale.buy(&coupon, user).await?;
    Ok((StatusCode::CREATED, format!("order {order}")))
}

async fn buy_unlocked(
    State(sale): State<Sale>,
    Path((coupon, user)): Path<(String, u32)>,
) -> Result<(StatusCode, String), Refusal> {
    let order = sale.buy_unlocked(&coupon, user).await?;
    Ok((StatusCode::CREATED, format!("order {order}")))
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match &self {
            Refusal::NoSuchCoupon => StatusCode::NOT_FOUND,
            Refusal::SoldOut => StatusCode::GONE,
            Refusal::AlreadyOrdered => StatusCode::CONFLICT,
            Refusal::Overtaken => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Database(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Refusal::Lock(error) => {
                return tower_lock::Refusal::from(error.clone()).into_response();
            }
        };
        let text = self.to_string();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            (status, [(header::RETRY_AFTER, "1")], text).into_response()
        } else {
            (status, text).into_response()
        }
    }
}
