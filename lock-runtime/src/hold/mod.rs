//! A hold: what is known of a lock that this process has, and who shares it.

pub(crate) mod call_chain;
pub(crate) mod core;
pub(crate) mod group;
pub(crate) mod handle;
pub(crate) mod ids;
pub(crate) mod keeping;
pub(crate) mod lifecycle;
mod loss;
pub(crate) mod runtimes;
pub(crate) mod served;
pub(crate) mod sharing;
pub(crate) mod state;
pub(crate) mod tenure;

pub(crate) use self::call_chain::{CallChain, Caller, Frame, Level, Nest};
pub(crate) use self::core::Core;
pub(crate) use self::group::{Handles, Held, all_of};
pub(crate) use self::handle::{HoldHandle, Unclaimed};
pub(crate) use self::keeping::Kept;
pub(crate) use self::lifecycle::{Lifecycle, current_runtime, refused};
pub(crate) use self::served::Asking;
pub(crate) use self::sharing::Left;
pub(crate) use self::state::{Beginning, Hold};
pub(crate) use self::tenure::Tenure;
