//! The work of locks, as traces by OpenTelemetry and as metrics for Prometheus.
//!
//! `cargo run --features otel --bin observability` sends two requests for one order, and prints their spans and some of
//! the metrics. With `OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317` in front, the spans also go to a collector, by
//! OTLP over gRPC. With `-- 127.0.0.1:9464` at the end, the program goes on until Ctrl-C and serves `/metrics` there.

mod console;

use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use examples::{Failure, prove};
use lock_runtime::{LockError, LockManager, distributed_lock};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::net::TcpListener;
use tokio::time::{interval, sleep};
use tracing::{Instrument, Level, info_span, instrument};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// The upper ends of the histograms' buckets, in seconds. Without buckets, the exporter writes summaries, whose
/// percentiles cannot be joined over processes.
const BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
];

/// Installs the recorder. This must come before the manager is built, which describes its metrics to the recorder that
/// is there then.
fn record_metrics() -> Result<PrometheusHandle, Failure> {
    let builder = PrometheusBuilder::new().set_buckets(&BUCKETS)?;
    Ok(builder.install_recorder()?)
}

fn export_traces() -> Result<SdkTracerProvider, Failure> {
    let service = Resource::builder()
        .with_service_name("observability")
        .build();
    let mut provider = SdkTracerProvider::builder()
        .with_resource(service)
        .with_simple_exporter(console::Console);
    if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
        provider = provider.with_batch_exporter(SpanExporter::builder().with_tonic().build()?);
    }
    let provider = provider.build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("observability"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false);
    // The spans of the locks are of the level DEBUG. The exporter's own spans are not exported.
    let ours = Targets::new()
        .with_target("lock_runtime", Level::DEBUG)
        .with_target("observability", Level::INFO);
    tracing_subscriber::registry()
        .with(layer.with_filter(ours))
        .init();
    Ok(provider)
}

/// Serves one request. The spans `lock.wait` and `lock.hold` are its children, and so are the spans under the lock.
#[instrument(name = "request", skip(locks))]
async fn settle(locks: &LockManager, customer: &'static str) -> Result<(), LockError> {
    pay(locks, 7).await
}

#[distributed_lock(key = "order:{id}", wait = "5s", manager = locks)]
async fn pay(locks: &LockManager, id: u64) -> Result<(), LockError> {
    sleep(Duration::from_millis(20))
        .instrument(info_span!("pay", id))
        .await;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let (metrics, traces) = match record_metrics().and_then(|it| Ok((it, export_traces()?))) {
        Ok(both) => both,
        Err(error) => {
            eprintln!("observability: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = examples::run("observability", async |locks| show(locks, &metrics).await).await;
    // This sends the spans that the batch still holds.
    if let Err(error) = traces.shutdown() {
        eprintln!("observability: {error}");
        return ExitCode::FAILURE;
    }
    code
}

async fn show(locks: &LockManager, metrics: &PrometheusHandle) -> Result<(), Failure> {
    println!("\n1. Ada and bob want to settle one order. Each trace, as its spans end:");
    let (ada, bob) = tokio::join!(settle(locks, "ada"), settle(locks, "bob"));
    ada.and(bob)?;

    println!("\n2. Some of the metrics:");
    let text = metrics.render();
    let acquired = r#"lock_acquire_total{lock="order:{id}",kind="mutex","#;
    for line in text.lines().filter(|line| {
        [
            "lock_acquire_total{",
            "lock_held{",
            "lock_wait_seconds_count{",
        ]
        .iter()
        .any(|start| line.starts_with(start))
    }) {
        println!("   {line}");
    }
    prove(
        text.lines()
            .any(|line| line.starts_with(acquired) && line.ends_with(" 2")),
        "two acquired locks are counted, by the lock's template and not by its name",
    )?;
    match std::env::args().nth(1) {
        Some(address) => serve(locks, metrics.clone(), &address).await,
        None => Ok(()),
    }
}

/// Serves `/metrics` until Ctrl-C, and settles orders meanwhile, so that there is something to see.
async fn serve(
    locks: &LockManager,
    metrics: PrometheusHandle,
    address: &str,
) -> Result<(), Failure> {
    console::stop_printing();
    let listener = TcpListener::bind(address).await?;
    println!(
        "\n3. http://{}/metrics, until Ctrl-C.",
        listener.local_addr()?
    );
    let upkeep = metrics.clone();
    let app = Router::new().route("/metrics", get(async move || metrics.render()));
    let orders = async {
        let mut every = interval(Duration::from_millis(100));
        loop {
            every.tick().await;
            let (ada, bob) = tokio::join!(pay(locks, 7), pay(locks, 7));
            if let Err(error) = ada.and(bob) {
                println!("   {error}");
            }
            // Without this, histograms would grow between two scrapes.
            upkeep.run_upkeep();
        }
    };
    tokio::select! {
        served = axum::serve(listener, app).into_future() => Ok(served?),
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        () = orders => Ok(()),
    }
}
