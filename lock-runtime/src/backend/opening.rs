//! The parameters with which a store is opened.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::backend::EventSink;
use crate::backend::kit::uptime::Uptime;
use crate::values::Options;

/// The parameters with which a store is opened.
#[derive(Clone)]
pub(crate) struct Opening {
    pub(crate) options: Options,
    /// The runtime that runs the store's tasks.
    pub(crate) runtime: Handle,
    pub(crate) events: EventSink,
    /// The record of the server's restarts, if it is needed.
    pub(crate) uptime: Option<Arc<Uptime>>,
}
