//! The hosts of a URL, one of which is the primary, and the addresses of their names.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::names::HostNames;
use crate::backend::Fault;
use crate::sync::Mutex;
use crate::values::clock;

/// `host:port` of a server.
pub(crate) type Address = Arc<str>;

/// The settings for one host.
pub(crate) trait Host: Clone + Sync {
    /// Returns the name and the port to look up; `None` for an address or a socket.
    fn name(&self) -> Option<(&str, u16)>;

    /// Returns the address, if these are the settings for one address of a name.
    fn address(&self) -> Option<IpAddr>;

    /// Returns the settings for one address of the name. `others`: whether the name has further addresses. The name
    /// stays, because the server's certificate is checked against it.
    fn at(&self, address: IpAddr, others: bool) -> Self;
}

/// The settings for one or more hosts that a client may connect to.
#[derive(Clone)]
pub(crate) struct Hosts<T> {
    each: Vec<T>,
    names: HostNames,
    /// The index of the host that served last. The next attempt begins there.
    last: Arc<Mutex<usize>>,
}

impl<T: Host> Hosts<T> {
    pub(crate) fn new(each: Vec<T>) -> Hosts<T> {
        Hosts::with(each, HostNames::default())
    }

    /// Returns hosts whose names were looked up before.
    pub(crate) fn with(each: Vec<T>, names: HostNames) -> Hosts<T> {
        Hosts {
            each,
            names,
            last: Arc::default(),
        }
    }

    pub(crate) fn each(&self) -> &[T] {
        &self.each
    }

    /// Connects to the first host that can be written to, within `timeout`. Begins at the host that served last, or
    /// with `at_any` at a random host. Each host, and each address of a name, gets a share of the time, so that a
    /// frozen host does not use up the time of the others. `connect` gets its share as an argument.
    pub(crate) async fn connect<C, F>(
        &self,
        at_any: bool,
        timeout: Duration,
        shown: impl Fn(&T) -> String,
        connect: impl Fn(T, Duration) -> F,
    ) -> Result<C, Fault>
    where
        F: Future<Output = Result<C, Fault>>,
    {
        let count = self.each.len();
        let last = *self.last.lock();
        let first = if at_any {
            fastrand::usize(..count)
        } else {
            last
        };
        let share = timeout / u32::try_from(count).unwrap_or(u32::MAX);
        let mut refused = Vec::new();
        for index in (first..count).chain(0..first) {
            let host = &self.each[index];
            let until = clock::now() + share;
            let found = match host.name() {
                Some(name) => self.names.look_up(name, share).await,
                None => Ok(Vec::new()),
            };
            let places: Vec<T> = match found {
                Ok(found) if found.is_empty() => vec![host.clone()],
                Ok(found) => {
                    let others = found.len() > 1;
                    let at = |address: &IpAddr| host.at(*address, others);
                    found.iter().map(at).collect()
                }
                Err(fault) => {
                    refused.push((shown(host), fault));
                    continue;
                }
            };
            let before = refused.len();
            for (left, place) in (1..=places.len()).rev().zip(&places) {
                // The first addresses get a larger share: equal shares of very many addresses would be too short for a
                // login.
                let share = match left {
                    1 => until.remaining(),
                    _ => until.remaining() / 2,
                };
                let fault = match connect(place.clone(), share).await {
                    Ok(connected) => {
                        *self.last.lock() = index;
                        if let Some(name) = host.name() {
                            self.names.served(name, place.address());
                        }
                        return Ok(connected);
                    }
                    Err(fault) => fault,
                };
                let shown = match place.address() {
                    Some(address) => format!("{} at {address}", shown(place)),
                    None => shown(place),
                };
                refused.push((shown, fault));
            }
            // The server behind the name has refused. Errors of its other addresses, where it does not listen, are of
            // no interest. Of addresses of other machines, one may be of a replica, and the primary comes back at another.
            let is_final = |(place, (_, fault)): (&T, &(String, Fault))| match fault {
                Fault::Denied(_) => true,
                Fault::Impossible(_) => place.address().is_some_and(|at| at.is_loopback()),
                _ => false,
            };
            let mut tried = places.iter().zip(&refused[before..]);
            if let Some(at) = tried.position(is_final) {
                let refusal = refused.swap_remove(before + at);
                refused.truncate(before);
                refused.push(refusal);
            }
        }
        Err(together(refused))
    }
}

/// Connects by a driver that does not report which step it waits for.
pub(crate) async fn in_share<C>(
    share: Duration,
    connecting: impl Future<Output = Result<C, Fault>>,
) -> Result<C, Fault> {
    let silent = |_| {
        Fault::not_done(format!(
            "no connection within {share:?}: nothing answers at the address, or the server does not answer the login"
        ))
    };
    tokio::time::timeout(share, connecting)
        .await
        .map_err(silent)?
}

/// Returns the error if no host could be connected to: the reasons of all hosts if a retry can help with one of them,
/// otherwise the last reason.
fn together(mut refused: Vec<(String, Fault)>) -> Fault {
    let is_hopeful = |(_, fault): &(String, Fault)| matches!(fault, Fault::NotDone(_));
    if refused.len() > 1 && refused.iter().any(is_hopeful) {
        let all: Vec<String> = refused
            .iter()
            .map(|(host, fault)| format!("{host}: {fault}"))
            .collect();
        return Fault::not_done(all.join("; "));
    }
    let last = refused.pop().map(|(_, fault)| fault);
    last.unwrap_or_else(|| Fault::not_done("there is no host"))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// A name whose addresses are 127.0.0.1 to 127.0.0.3, or one of them.
    #[derive(Clone)]
    struct TestName(Option<IpAddr>);

    impl Host for TestName {
        fn name(&self) -> Option<(&str, u16)> {
            Some(("three", 1))
        }

        fn address(&self) -> Option<IpAddr> {
            self.0
        }

        fn at(&self, address: IpAddr, others: bool) -> TestName {
            assert!(others);
            TestName(Some(address))
        }
    }

    fn three() -> Hosts<TestName> {
        let addresses = (1..=3).map(|n| IpAddr::from([127, 0, 0, n])).collect();
        Hosts::with(vec![TestName(None)], HostNames::of("three", addresses))
    }

    #[tokio::test(start_paused = true)]
    async fn connecting_skips_an_address_that_is_silent_or_refuses() {
        let hosts = three();
        let asked = &Mutex::new(Vec::new());
        let connect = |name: TestName, share| {
            in_share(share, async move {
                asked.lock().push(name.0);
                match name.0 {
                    Some(IpAddr::V4(address)) if address.octets()[3] == 1 => pending().await,
                    Some(IpAddr::V4(address)) if address.octets()[3] == 2 => {
                        Err(Fault::impossible("a standby"))
                    }
                    _ => Ok(()),
                }
            })
        };
        for _ in 0..2 {
            let second = Duration::from_secs(1);
            let connecting = hosts.connect(false, second, |_| "three".to_owned(), connect);
            connecting.await.unwrap();
        }
        // The host remembers the address that served last, and the next attempt begins there.
        let address = |n| Some(IpAddr::from([127, 0, 0, n]));
        assert_eq!(*asked.lock(), [1, 2, 3, 3].map(address));
    }

    #[tokio::test(start_paused = true)]
    async fn a_servers_refusal_outranks_errors_of_its_other_addresses() {
        let refused_by = async |first, fault: Fault| {
            let addresses = (1..=3).map(|n| IpAddr::from([first, 0, 0, n])).collect();
            let hosts = Hosts::with(vec![TestName(None)], HostNames::of("three", addresses));
            let connect = async |name: TestName, _| -> Result<(), Fault> {
                Err(match name.0 {
                    Some(IpAddr::V4(address)) if address.octets()[3] == 2 => fault.clone(),
                    _ => Fault::not_done("nobody listens"),
                })
            };
            let shown = |_: &TestName| "three".to_owned();
            let refused = hosts.connect(false, Duration::from_secs(1), shown, connect);
            refused.await.unwrap_err()
        };
        for first in [10, 127] {
            let refused = refused_by(first, Fault::denied("password")).await;
            assert!(matches!(refused, Fault::Denied(_)));
        }
        let is_http = || Fault::impossible("an HTTP server");
        assert!(matches!(
            refused_by(127, is_http()).await,
            Fault::Impossible(_)
        ));
        assert!(
            refused_by(10, is_http()).await.is_passing(),
            "the primary may come back"
        );
    }
}
