//! What a store is opened with.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::backend::EventSink;
use crate::backend::kit::uptime::Uptime;
use crate::values::Options;

/// What a store is opened with.
#[derive(Clone)]
pub(crate) struct Opening {
    pub(crate) options: Options,
    /// Where its tasks live.
    pub(crate) runtime: Handle,
    pub(crate) events: EventSink,
    /// Where to note restarts, if somebody needs to know of them.
    pub(crate) uptime: Option<Arc<Uptime>>,
}
