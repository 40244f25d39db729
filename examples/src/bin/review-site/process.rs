//! One of the processes behind the port: it serves, writes orders of the stream, and ends without losing a request.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::process::parent_id;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::serve::Listener;
use examples::{Failure, Store};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::{interval, sleep, timeout};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::housekeeper::keep_house;
use crate::lock_view;
use crate::processes::{PATIENCE, asked_to_end};
use crate::server;
use crate::site::{Redis, Site, connect};

/// The time for which a process that ends still serves the connections that it has. It accepts no more of them, and tells
/// each client to close its own. Without that time, a connection that was just accepted would be closed unread.
const LEAVE: Duration = Duration::from_secs(1);

/// Serves until SIGTERM, Ctrl-C or the end of its parent.
pub(crate) async fn serve(database: &Path) -> Result<(), Failure> {
    let end = asked_to_end()?;
    // Before the first line of output, which fails if the parent has ended by then.
    let parent = parent_id();
    trace();
    // The recorder comes first: a manager describes its metrics to the one that is there. All processes are behind one
    // port, so a label says which of them has answered.
    let metrics = PrometheusBuilder::new()
        .add_global_label("process", std::process::id().to_string())
        .set_buckets(&[0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0])?
        .install_recorder()?;
    let upkeep = metrics.clone();
    tokio::spawn(async move {
        let mut every = interval(Duration::from_secs(5));
        loop {
            every.tick().await;
            // Without this, histograms would grow until the next scrape.
            upkeep.run_upkeep();
        }
    });
    let store = Store::from_env();
    let site = Site::open(&store, database).await?;
    site.stream_sale.open().await?;
    let listener = std::net::TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;

    let stopped = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(write_orders(
        site.clone(),
        connect(&store).await?,
        stopped.clone(),
    ));
    tokio::spawn(keep_house(site.locks.clone(), site.stream_sale.clone()));
    let view = tokio::spawn(tell(site.clone()));
    println!("{}", site.locks.id());

    let (ending, ended) = watch::channel(false);
    let door = Door {
        listener,
        ended: ended.clone(),
    };
    let router = server::router(site.clone(), metrics, ended.clone());
    let (close, closed) = oneshot::channel::<()>();
    let server = axum::serve(door, router).with_graceful_shutdown(async { drop(closed.await) });
    let server = tokio::spawn(server.into_future());
    tokio::select! {
        () = end => {}
        () = orphaned(parent) => {}
    }
    // First the requests, those that wait for locks, too. Then the orders, then the locks.
    ending.send_replace(true);
    sleep(LEAVE).await;
    drop(close);
    let _ = timeout(PATIENCE, server).await;
    stopped.store(true, Ordering::Relaxed);
    view.abort();
    // Not for long if Redis is away, too.
    let _ = timeout(LEAVE, site.lock_view.leave()).await;
    let _ = timeout(PATIENCE, writer).await;
    site.locks.shutdown().await;
    Ok(())
}

/// The listener, which leaves the queue to the other processes when this one ends.
struct Door {
    listener: TcpListener,
    ended: watch::Receiver<bool>,
}

impl Listener for Door {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        tokio::select! {
            biased;
            () = async { drop(self.ended.wait_for(|ended| *ended).await) } => pending().await,
            accepted = Listener::accept(&mut self.listener) => accepted,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Logs warnings to stderr; with `TRACE`, also the spans of requests and of their locks, each when it ends.
fn trace() {
    let level = match std::env::var_os("TRACE") {
        Some(_) => LevelFilter::DEBUG,
        None => LevelFilter::WARN,
    };
    let ours = Targets::new()
        .with_default(LevelFilter::WARN)
        .with_targets([("review_site", level), ("lock_runtime", level)]);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_span_events(FmtSpan::CLOSE);
    tracing_subscriber::registry().with(ours).with(lines).init();
}

/// Waits for the end of the parent. Standard input is the listener, so no pipe tells of it.
async fn orphaned(parent: u32) {
    let mut every = interval(Duration::from_millis(500));
    while parent_id() == parent {
        every.tick().await;
    }
}

/// Writes the orders of the stream, and begins anew after an error: Redis may be away, or have lost its data.
pub(crate) async fn write_orders(site: Site, mut redis: Redis, stopped: Arc<AtomicBool>) {
    let sale = &site.stream_sale;
    while !stopped.load(Ordering::Relaxed) {
        let writer = site.locks.id();
        let written = sale.write_orders(&mut redis, &writer, || stopped.load(Ordering::Relaxed));
        if let Err(error) = written.await
            && !stopped.load(Ordering::Relaxed)
        {
            tracing::warn!("orders wait: {error}");
            sleep(Duration::from_secs(1)).await;
            if let Err(error) = sale.open().await {
                tracing::warn!("the sale is closed: {error}");
            }
        }
    }
}

async fn tell(site: Site) {
    let mut every = interval(lock_view::EVERY);
    loop {
        every.tick().await;
        if let Err(error) = site.lock_view.tell().await {
            tracing::warn!("the others do not see the locks of this process: {error}");
        }
    }
}
