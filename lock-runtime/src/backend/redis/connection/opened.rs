//! A connection that was just opened.

use std::sync::Arc;
use std::time::Duration;

use redis::PushKind;
use tokio::sync::Notify;

use super::refused::refused;
use super::{Relogin, Target, Wire, check, dial};
use crate::backend::Fault;
use crate::backend::kit::server_clock::ServerClock;
use crate::backend::redis::scripting::{self, faults};
use crate::backend::redis::sentinel::Address;
use crate::values::{LockError, clock};

/// The time for connecting to a store and checking it.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);

/// A fresh connection, and the signal that it was cut.
pub(crate) struct Opened {
    pub(crate) connection: Wire,
    pub(crate) cut: Arc<Notify>,
    pub(crate) master: Option<Address>,
    /// The ids of holders from this number on were drawn after the connection was opened. No other connection of the
    /// manager has this number. See [`HolderIds::renew`](crate::values::HolderIds::renew).
    pub(super) ids_from: u64,
    /// The id of the server's run. `None` if the server does not show it.
    pub(super) run_id: Option<Box<str>>,
    _relogin: Option<Relogin>,
}

impl Opened {
    /// Opens the first connection to a server, and checks it before any other request.
    pub(crate) async fn checked(
        target: &Target,
        check: &check::Check,
        clock: &ServerClock,
    ) -> Result<Opened, LockError> {
        let looked = async {
            // If the first address of a name is silent, there is time for the next one.
            let timeout = check.timeout().min(CONNECT);
            let opened = Opened::open(target, timeout, check, clock).await?;
            check.look_at_birth(&opened.connection).await?;
            let checked = check.run(&opened.connection, clock).await;
            checked.map_err(|fault| fault.at(target.shown()))?;
            Ok(opened)
        };
        looked
            .await
            .map_err(|fault: Fault| fault.into_error(target.shown()))
    }

    /// Connects, with a signal for the end of the connection.
    pub(crate) async fn dial(target: &Target, timeout: Duration) -> Result<Opened, Fault> {
        let cut = Arc::new(Notify::new());
        let signal = cut.clone();
        let dialed = dial::open(target, timeout, move |push| {
            if push.kind == PushKind::Disconnection {
                signal.notify_one();
            }
        });
        let dialed = dialed.await?;
        Ok(Opened {
            connection: dialed.connection,
            cut,
            master: dialed.master,
            ids_from: u64::MAX,
            run_id: None,
            _relogin: dialed.relogin,
        })
    }

    /// Connects for acquires: reads the server's clock, and begins a generation of holder ids.
    pub(crate) async fn open(
        target: &Target,
        timeout: Duration,
        check: &check::Check,
        clock: &ServerClock,
    ) -> Result<Opened, Fault> {
        let mut opened = Opened::dial(target, timeout).await?;
        let sent_at = clock::now();
        let time = redis::cmd("TIME");
        let asked = async {
            let reply = scripting::send(&mut opened.connection.clone(), &time).await;
            reply.map_err(|error| {
                let fault = faults::of_question(&error, target.is_tls());
                refused(fault).at(target.shown())
            })
        };
        let reply = scripting::in_time("TIME", timeout, asked).await?;
        let micros = check::micros(&reply).ok_or_else(|| faults::malformed("TIME"))?;
        clock.saw(micros, sent_at);
        // The reply to HELLO contains the number that the server gave this connection.
        let (hello, connection) = (redis::cmd("HELLO"), &mut opened.connection.clone());
        let said = dial::sign(connection, &hello, timeout).await?;
        let ids = &check.opening.ids;
        opened.ids_from = ids.renew(&format!("{said:?} {micros}"));
        // Without its id, a message about a reservation is a hint. In a cluster or a quorum, it always is.
        if check.slot.is_none() && check.opening.uptime.is_none() {
            let asked = scripting::info(connection, &["server"]);
            let info = scripting::in_time("INFO", timeout, asked).await.ok();
            let run_id = info.and_then(|info| info.get::<String>("run_id"));
            opened.run_id = run_id.map(String::into_boxed_str);
        }
        Ok(opened)
    }
}
