//! The parameters with which a store is opened.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::backend::EventSink;
use crate::backend::kit::uptime::Uptime;
use crate::values::{HolderIds, Options};

#[derive(Clone)]
pub(crate) struct Opening {
    pub(crate) options: Options,
    /// The runtime that runs the store's tasks.
    pub(crate) runtime: Handle,
    pub(crate) events: EventSink,
    /// The ids of the manager's holders. Each connection that carries acquires begins a new generation of them.
    pub(crate) ids: Arc<HolderIds>,
    /// The record of the server's restarts, for a node of a quorum: a store that can restart without its locks calls
    /// [`Uptime::saw`].
    pub(crate) uptime: Option<Arc<Uptime>>,
}
