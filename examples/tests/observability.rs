//! The traces and metrics of locks that the program prints and sends to a collector.

use std::net::Ipv4Addr;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

fn observability(locks: &str, collector: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_observability"));
    command.env("LOCK_URL", locks);
    if let Some(url) = collector {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", url);
    }
    command.output().expect("run observability")
}

/// Checks that the program went well, and returns what it printed.
fn printed(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert_eq!(errors, "");
    text
}

/// Returns a field of a printed span: `parent > id name 0.3 ms  key=value …`.
fn field<'a>(span: &'a str, key: &str) -> &'a str {
    let mut fields = span.split_whitespace();
    let found = fields.find_map(|field| field.strip_prefix(key)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {key} in {span}"))
}

#[test]
fn a_trace_shows_the_wait_and_the_hold_of_a_lock_as_spans() {
    let text = printed(&observability("", None));
    assert!(
        text.contains("proved: two acquired locks are counted"),
        "{text}"
    );
    for customer in ["ada", "bob"] {
        let spans = |name: &str| -> Vec<&str> {
            let is_of = |line: &&str| line.split_whitespace().nth(3) == Some(name);
            text.lines().filter(is_of).collect()
        };
        let requests = spans("request");
        let request = requests
            .iter()
            .find(|span| field(span, "customer") == customer)
            .unwrap_or_else(|| panic!("no request of {customer} in\n{text}"));
        let id = request.split_whitespace().nth(2).unwrap();
        for (name, outcome) in [("lock.wait", "acquired"), ("lock.hold", "released")] {
            let ours: Vec<&str> = spans(name)
                .into_iter()
                .filter(|span| span.trim_start().starts_with(id))
                .collect();
            let [span] = ours[..] else {
                panic!("not one {name} of {customer} in\n{text}");
            };
            for (key, value) in [
                ("lock", "order:7"),
                ("template", "order:{id}"),
                ("kind", "mutex"),
                ("store", "memory"),
                ("outcome", outcome),
            ] {
                assert_eq!(field(span, key), value, "{span}");
            }
            if name == "lock.hold" {
                assert!(field(span, "token").parse::<u64>().unwrap() > 0);
            }
        }
    }
}

#[test]
fn without_its_store_it_ends_with_one_line_and_exit_code_2() {
    let output = observability("redis://127.0.0.1:1/", None);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

/// A collector that keeps the spans that it is sent.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        let mut kept = self.0.lock().expect("no test has failed");
        kept.extend(scopes.flat_map(|scope| scope.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn attribute<'a>(span: &'a Span, key: &str) -> &'a Value {
    let mut found = span.attributes.iter().filter(|it| it.key == key);
    let value = found
        .next()
        .and_then(|it| it.value.as_ref()?.value.as_ref());
    value.unwrap_or_else(|| panic!("no {key} in {span:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_waits_and_holds_and_nothing_of_the_exporter() {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let collector = Collector::default();
    let service = TraceServiceServer::new(collector.clone());
    let server = tonic::transport::Server::builder().add_service(service);
    let serving = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let run = tokio::task::spawn_blocking(move || observability("", Some(&url)));
    printed(&run.await.expect("it does not panic"));
    serving.abort();

    let spans = collector.0.lock().expect("no test has failed");
    let called = |name: &str| -> Vec<&Span> {
        let spans = spans.iter().filter(|span| span.name == name);
        spans.collect()
    };
    let requests = called("request");
    assert_eq!((requests.len(), spans.len()), (2, 8), "{spans:?}");
    for (name, outcome) in [("lock.wait", "acquired"), ("lock.hold", "released")] {
        let of_locks = called(name);
        for request in &requests {
            let is_child = |span: &&&Span| {
                span.parent_span_id == request.span_id && span.trace_id == request.trace_id
            };
            let span = of_locks.iter().find(is_child);
            let span = span.unwrap_or_else(|| panic!("no {name} of {request:?}"));
            for (key, value) in [
                ("template", "order:{id}"),
                ("kind", "mutex"),
                ("outcome", outcome),
            ] {
                let value = Value::StringValue(value.to_owned());
                assert_eq!(attribute(span, key), &value);
            }
        }
    }
}
