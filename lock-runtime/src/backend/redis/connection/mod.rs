//! Connections: from a URL to a connection that has passed its check, and keeping it alive.

pub(crate) mod acquire_limit;
pub(crate) mod check;
pub(crate) mod dial;
pub(crate) mod dial_options;
pub(crate) mod group;
pub(crate) mod link;
pub(crate) mod opened;
pub(crate) mod refused;
mod relogin;
pub(crate) mod sharing;
mod stream;
pub(crate) mod supervisor;
pub(crate) mod target;
pub(crate) mod uptime;
pub(crate) mod url;
pub(crate) mod wire;

pub(crate) use self::check::Check;
pub(crate) use self::dial_options::DialOptions;
pub(crate) use self::link::{Link, Live};
pub(crate) use self::opened::Opened;
pub(crate) use self::supervisor::{ClusterMember, Supervisor};
pub(crate) use self::target::Target;
pub(crate) use self::wire::Wire;
