//! The hosts of a URL, and its `sslmode`, as settings of tokio-postgres.

use std::net::IpAddr;

use tokio_postgres::Config;
use tokio_postgres::config::{
    ChannelBinding, Host as At, LoadBalanceHosts, SslMode, SslNegotiation, TargetSessionAttrs,
};

use super::tls::{self, Tls};
use crate::backend::kit::hosts::Host;
use crate::backend::sql::Encryption;
use crate::backend::sql::url::HostSettings;
use crate::values::{Certificates, LockError, Login, config};

/// Makes the client refuse a standby, which keeps no locks: another host, or address, may be the primary.
pub(super) fn look_for_the_primary(config: &mut Config) {
    if config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
}

/// Sets whether connections use TLS, and refuses settings that contradict it. `Tls` decides what is verified.
pub(super) fn encrypt(encryption: Encryption, to: &mut Config) -> Result<(), LockError> {
    if encryption != Encryption::Off {
        to.ssl_mode(SslMode::Require);
        let mut hosts = to.get_hosts().iter();
        return if hosts.all(|host| matches!(host, At::Tcp(_))) {
            Ok(())
        } else {
            Err(config(
                "a unix socket has no TLS: leave out `sslmode`, or name a host",
            ))
        };
    }
    to.ssl_mode(SslMode::Disable);
    let needs_tls = to.get_ssl_negotiation() == SslNegotiation::Direct
        || to.get_channel_binding() == ChannelBinding::Require;
    if needs_tls {
        Err(config(
            "`sslnegotiation=direct` and `channel_binding=require` need TLS: say `sslmode=verify-full`, too",
        ))
    } else {
        Ok(())
    }
}

impl Host for Config {
    fn name(&self) -> Option<(&str, u16)> {
        match (self.get_hosts(), self.get_hostaddrs()) {
            ([At::Tcp(name)], []) if name.parse::<IpAddr>().is_err() => {
                Some((name, self.get_ports().first().copied().unwrap_or(5432)))
            }
            _ => None,
        }
    }

    fn address(&self) -> Option<IpAddr> {
        self.get_hostaddrs().first().copied()
    }

    fn at(&self, address: IpAddr, others: bool) -> Config {
        let mut one = self.clone();
        one.hostaddr(address);
        if others {
            look_for_the_primary(&mut one);
        }
        one
    }
}

impl HostSettings for Config {
    type Tls = Tls;

    /// Returns several of them if the URL gave the hosts as options.
    fn shown(&self) -> String {
        let ports = self.get_ports();
        let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        let hosts = self.get_hosts().iter().enumerate();
        let hosts = hosts.map(|(index, host)| match host {
            At::Tcp(name) => format!("{name}:{}", port(index)),
            #[cfg(unix)]
            At::Unix(path) => path.display().to_string(),
        });
        hosts.collect::<Vec<_>>().join(",")
    }

    fn database(&self) -> Option<&str> {
        self.get_dbname().or(self.get_user())
    }

    fn has_password(&self) -> bool {
        self.get_password().is_some()
    }

    fn with_login(mut self, login: &Login) -> Config {
        self.password(&login.password);
        if let Some(user) = &login.user {
            self.user(user);
        }
        self
    }

    fn begins_at_any(&self) -> bool {
        self.get_load_balance_hosts() == LoadBalanceHosts::Random
    }

    fn tls(encryption: Encryption, certificates: &Certificates) -> Result<Tls, LockError> {
        tls::settings(encryption, certificates)
    }
}
