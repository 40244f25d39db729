//! A connection that was just opened.

use std::sync::Arc;
use std::time::Duration;

use super::dial::Dialed;
use super::refused::refused;
use super::{Target, check, dial};
use crate::backend::Fault;
use crate::backend::kit::hosts::Address;
use crate::backend::redis::scripting::{self, faults};
use crate::values::{LockError, clock};

/// The time for connecting to a store and checking it.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);
/// The longest step of connecting to a server, before the check. It ends before the whole does: its error says which answer
/// is missing, and what may help.
const LONGEST_STEP: Duration = Duration::from_secs(4);

/// A fresh connection for acquires.
pub(crate) struct Opened {
    pub(super) dialed: Dialed,
    pub(super) facts: Arc<ConnectionFacts>,
}

/// What is known of a connection, and stays as it is.
pub(super) struct ConnectionFacts {
    /// The node, if sentinels named it.
    pub(super) master: Option<Address>,
    /// The ids of holders from this number on were drawn after the connection was opened. No other connection of the
    /// manager has this number. See [`HolderIds::renew`](crate::values::HolderIds::renew). Requests on the connection with
    /// this number are executed in the order in which they were queued.
    pub(super) ids_from: u64,
    /// The id of the server's run. `None` if the server does not show it.
    pub(super) run_id: Option<Box<str>>,
}

impl Opened {
    /// Opens the first connection to a server, and checks it before any other request.
    pub(crate) async fn checked(
        target: &Target,
        check: &check::Check,
    ) -> Result<Opened, LockError> {
        let looked = async {
            // If the first address of a name is silent, there is time for the next one.
            let timeout = check.timeout().min(LONGEST_STEP);
            let opened = Opened::open(target, timeout, check).await?;
            let connection = &opened.dialed.connection;
            check.look_at_birth(connection).await?;
            let checked = check.run(connection).await;
            checked.map_err(|fault| fault.at(target.shown()))?;
            Ok(opened)
        };
        looked
            .await
            .map_err(|fault: Fault| fault.into_error(target.shown()))
    }

    /// Connects, reads the server's clock, and begins a generation of holder ids.
    pub(crate) async fn open(
        target: &Target,
        timeout: Duration,
        check: &check::Check,
    ) -> Result<Opened, Fault> {
        let dialed = dial::open(target, timeout, Arc::new(|_| ())).await?;
        let connection = &mut dialed.connection.clone();
        let sent_at = clock::now();
        let time = redis::cmd("TIME");
        let asked = async {
            let reply = scripting::send(connection, &time).await;
            reply.map_err(|error| {
                let fault = faults::of_call(&error).of_a_question();
                refused(fault).at(target.shown())
            })
        };
        let reply = scripting::in_time("TIME", timeout, asked).await?;
        let micros = check::micros(&reply).ok_or_else(|| faults::malformed("TIME"))?;
        check.clock.saw(micros, sent_at);
        // The reply to HELLO contains the number that the server gave this connection.
        let said = dial::sign(connection, &redis::cmd("HELLO"), timeout).await?;
        let ids_from = check.opening.ids.renew(&format!("{said:?} {micros}"));
        let mut run_id = None;
        // Without its id, a message about a reservation is a hint. In a cluster or a quorum, it always is.
        if check.slot.is_none() && check.opening.uptime.is_none() {
            let asked = scripting::info(connection, &["server"]);
            let info = scripting::in_time("INFO", timeout, asked).await.ok();
            let shown = info.and_then(|info| info.get::<String>("run_id"));
            run_id = shown.map(String::into_boxed_str);
        }
        let facts = Arc::new(ConnectionFacts {
            master: dialed.master.clone(),
            ids_from,
            run_id,
        });
        Ok(Opened { dialed, facts })
    }
}
