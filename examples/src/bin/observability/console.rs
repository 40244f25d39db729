//! An exporter that prints each span as it ends, for a program that has no collector.

use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

#[derive(Debug)]
pub(crate) struct Console;

static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Stops the printing, because nobody reads the spans of a service.
pub(crate) fn stop_printing() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

impl SpanExporter for Console {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        if IS_QUIET.load(Ordering::Relaxed) {
            return Ok(());
        }
        for span in batch {
            let took = span.end_time.duration_since(span.start_time);
            let millis = took.unwrap_or_default().as_secs_f64() * 1e3;
            // The ends of the two ids are enough to see which spans belong together.
            let id = &span.span_context.span_id().to_string()[12..];
            let parent = &span.parent_span_id.to_string()[12..];
            let fields = span.attributes.iter().filter(|field| {
                let key = field.key.as_str();
                key != "level" && key != "target"
            });
            let fields: Vec<String> = fields
                .map(|field| format!("{}={}", field.key, field.value))
                .collect();
            let (name, fields) = (span.name, fields.join(" "));
            println!("   {parent} > {id} {name:<9} {millis:5.1} ms  {fields}");
        }
        Ok(())
    }
}
