//! The addresses of hosts' names, and the addresses that were last found.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::backend::Fault;
use crate::observe::metrics::logged;
use crate::sync::Mutex;

/// The names that one store looks up. Clones share what was found.
#[derive(Clone, Default)]
pub(crate) struct HostNames {
    known: Arc<Mutex<HashMap<NameAndPort, KnownAddresses>>>,
    /// The addresses of a name that exists in a test alone.
    #[cfg(test)]
    made_up: Option<(&'static str, Vec<IpAddr>)>,
}

/// A name and a port.
type NameAndPort = (String, u16);

#[derive(Default)]
struct KnownAddresses {
    /// The addresses of the last answer.
    addresses: Vec<IpAddr>,
    /// The address to which a connection was last opened.
    served: Option<IpAddr>,
    /// The look-up under way. It takes a thread until the name service answers or the operating system gives up.
    under_way: Option<watch::Receiver<Option<LookedUp>>>,
}

type LookedUp = Result<Vec<IpAddr>, Arc<io::Error>>;

impl HostNames {
    /// Returns the addresses of a name, one or more. The address that served last comes first.
    ///
    /// The operating system looks names up on a thread, and tokio may have no free thread; a name service may fail,
    /// too. If there is no answer within a part of the time, the last addresses are returned: most names keep their
    /// addresses for years. A later answer is remembered for the next call.
    pub(crate) async fn look_up(
        &self,
        name: (&str, u16),
        within: Duration,
    ) -> Result<Vec<IpAddr>, Fault> {
        let known = self.known(name);
        let patience = if known.is_empty() { within } else { within / 4 };
        #[cfg(test)]
        if let Some((made_up, addresses)) = &self.made_up
            && *made_up == name.0
        {
            return Ok(self.in_order(name, addresses.clone()));
        }
        let mut looking = self.ask(name);
        let looked_up = looking.wait_for(Option::is_some);
        let found = tokio::time::timeout(patience, looked_up).await;
        let found = found.map(|found| match found.as_deref() {
            Ok(Some(found)) => found.clone(),
            Ok(None) | Err(_) => Err(Arc::new(io::Error::other("it ended"))),
        });
        let addresses = match found {
            Ok(Ok(found)) => found,
            Ok(Err(error)) if known.is_empty() || is_an_answer(&error) => {
                return Err(Fault::not_done(format!(
                    "{error}: check the host's name, and the name service"
                )));
            }
            Err(_) if known.is_empty() => {
                return Err(Fault::not_done(format!(
                    "no connection within {within:?}: the host's name is still being looked up. The name service may be \
                     away, or all threads busy that tokio has for blocking work"
                )));
            }
            unanswered => {
                let why = match unanswered {
                    Ok(Err(error)) => error.to_string(),
                    _ => format!("no answer within {patience:?}"),
                };
                let name = name.0;
                logged!(debug, name, why, "the last addresses of the host are used");
                known
            }
        };
        if addresses.is_empty() {
            Err(Fault::not_done("the host's name has no address"))
        } else {
            Ok(self.in_order(name, addresses))
        }
    }

    /// Looks a name up, if no look-up of it is under way: while the name service is away, those of many attempts to connect
    /// would take all threads. It runs in a task of its own, so that it goes on after its caller has gone.
    fn ask(&self, (name, port): (&str, u16)) -> watch::Receiver<Option<LookedUp>> {
        let mut all = self.known.lock();
        let known = all.entry((name.to_owned(), port)).or_default();
        // The runtime of a task that has told nothing may have ended.
        let under_way = known.under_way.as_ref();
        if let Some(looking) = under_way.filter(|looking| looking.has_changed().is_ok()) {
            return looking.clone();
        }
        let (tell, looking) = watch::channel(None);
        known.under_way = Some(looking.clone());
        let (names, host) = (self.clone(), name.to_owned());
        tokio::spawn(async move {
            let found = tokio::net::lookup_host((&*host, port)).await;
            let found = found.map(|found| found.map(|address| address.ip()).collect());
            let found: LookedUp = found.map_err(Arc::new);
            {
                let mut all = names.known.lock();
                let known = all.entry((host, port)).or_default();
                known.under_way = None;
                if let Ok(addresses) = &found {
                    known.addresses.clone_from(addresses);
                }
            }
            tell.send_replace(Some(found));
        });
        looking
    }

    #[cfg(test)]
    pub(crate) fn of(name: &'static str, addresses: Vec<IpAddr>) -> HostNames {
        HostNames {
            known: Arc::default(),
            made_up: Some((name, addresses)),
        }
    }

    fn known(&self, (name, port): (&str, u16)) -> Vec<IpAddr> {
        let all = self.known.lock();
        let known = all.get(&(name.to_owned(), port));
        known.map_or(Vec::new(), |known| known.addresses.clone())
    }

    /// Puts the address that served last before the others.
    fn in_order(&self, (name, port): (&str, u16), mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
        let all = self.known.lock();
        let served = all
            .get(&(name.to_owned(), port))
            .and_then(|known| known.served);
        addresses.sort_by_key(|address| Some(*address) != served);
        addresses
    }

    /// Notes that a connection was opened to this address of the name.
    pub(crate) fn served(&self, (name, port): (&str, u16), address: Option<IpAddr>) {
        let mut all = self.known.lock();
        let known = all.entry((name.to_owned(), port)).or_default();
        known.served = address;
    }
}

/// Returns `true` if the name service answered that the name, or an address for it, does not exist. Otherwise the
/// service could not be asked. The operating system reports the difference only in the text of the error.
fn is_an_answer(error: &io::Error) -> bool {
    // glibc and macOS, musl, Windows.
    let answers = [
        "not known",
        "No address",
        "does not resolve",
        "No such host",
    ];
    let said = error.to_string();
    answers.iter().any(|answer| said.contains(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_is_looked_up_once_at_a_time() {
        let (names, name) = (HostNames::default(), ("127.0.0.1", 1));
        let (first, second) = (names.ask(name), names.ask(name));
        assert!(first.same_channel(&second));
        let found = names.look_up(name, Duration::from_secs(60)).await;
        assert_eq!(found.unwrap(), [IpAddr::from([127, 0, 0, 1])]);
        assert!(!names.ask(name).same_channel(&first));
    }
}
