//! What this process has: a [`Tenure`] is the store's grant, and until when it is believed; a [`Turn`] is what one caller has
//! of it; a [`Hold`] is how its guards see that turn, and a [`HoldHandle`] is one guard's share of it. `tenure.rs` has the
//! invariants.

pub(crate) mod call_chain;
pub(crate) mod core;
pub(crate) mod group;
pub(crate) mod handle;
pub(crate) mod ids;
pub(crate) mod lifecycle;
mod loss;
pub(crate) mod runtimes;
pub(crate) mod served;
pub(crate) mod sharing;
pub(crate) mod tenure;
pub(crate) mod turn;

pub(crate) use self::call_chain::{CallChain, Caller, Frame, Level, Nest};
pub(crate) use self::core::Core;
pub(crate) use self::group::{Handles, Held, all_of};
pub(crate) use self::handle::{HoldHandle, Offer};
pub(crate) use self::lifecycle::{Lifecycle, current_runtime, refused};
pub(crate) use self::loss::Loss;
pub(crate) use self::served::Asking;
pub(crate) use self::sharing::{IdleEnd, Left, Next, Share};
pub(crate) use self::tenure::{Tenure, TurnAllowance};
pub(crate) use self::turn::{Hold, Turn};

#[cfg(test)]
pub(crate) mod tests;
