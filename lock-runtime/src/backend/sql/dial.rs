//! Connects to one of the hosts that a URL names.

use std::time::Duration;

use super::encryption::unusable;
use super::url::{HostSettings, SqlTarget};
use crate::backend::Fault;
use crate::backend::kit::{hosts::in_share, login};

impl<H: HostSettings> SqlTarget<H> {
    /// Connects to the first host that can be written to, with a login from the credentials if there are any. Each of
    /// these two steps may take `timeout`. Returns the connection, and the time after which another one has to take its
    /// place, because its login expires.
    pub(crate) async fn dial<C, F>(
        &self,
        timeout: Duration,
        connect: impl Fn(H, H::Tls) -> F,
    ) -> Result<(C, Option<Duration>), Fault>
    where
        F: Future<Output = Result<C, Fault>>,
    {
        let login = match &self.credentials {
            Some(credentials) => Some(login::ask(credentials, timeout).await?),
            None => None,
        };
        let tls = self.tls()?;
        let at_any = self.hosts.each().first().is_some_and(H::begins_at_any);
        let connecting = self
            .hosts
            .connect(at_any, timeout, H::shown, |host, share| {
                let host = match &login {
                    Some(login) => host.with_login(login),
                    None => host,
                };
                in_share(share, connect(host, tls.clone()))
            });
        let connection = connecting.await?;
        let valid_for = login.and_then(|login| login.valid_for);
        Ok((connection, valid_for.map(login::before_the_end)))
    }

    /// Returns the settings of TLS for a connection, with the certificates as they are now.
    pub(crate) fn tls(&self) -> Result<H::Tls, Fault> {
        H::tls(self.encryption, &self.certificates).map_err(unusable)
    }
}
