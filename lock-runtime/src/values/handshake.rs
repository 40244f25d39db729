//! The beginning of a connection to a server: its login, and the certificates that it shows and trusts.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::values::error::{LockError, config};

/// A user and a password, or a token that stands for one: what [`Credentials`] answer with.
///
/// `Debug` shows no password.
///
/// ```
/// use std::time::Duration;
/// use lock_runtime::Login;
///
/// let token = "eyJhbGciOi";
/// let login = Login::new("locks", token).valid_for(Duration::from_secs(900));
/// assert!(!format!("{login:?}").contains(token));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
    pub(crate) valid_for: Option<Duration>,
}

impl Login {
    /// A user's password or token.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Login {
        Login {
            user: Some(user.into()),
            ..Login::password(password)
        }
    }

    /// The password of the server's default user.
    pub fn password(password: impl Into<String>) -> Login {
        Login {
            user: None,
            password: password.into(),
            valid_for: None,
        }
    }

    /// The time for which the server lets a connection stay that was opened with this login, from now on. When three
    /// quarters of it are over, the credentials are asked again, and the open connection is logged in anew by `AUTH`:
    /// no request is held up. In databases, another connection takes its place. Never sooner than after 1 s. Default:
    /// for as long as the connection lives.
    ///
    /// Amazon ElastiCache closes connections of IAM users after 12 h; with Entra ID, a connection has to log in again
    /// before its token expires.
    pub fn valid_for(mut self, time: Duration) -> Login {
        self.valid_for = Some(time);
        self
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .field("valid_for", &self.valid_for)
            .finish_non_exhaustive()
    }
}

/// The answer of [`Credentials`], which may take its time. The error's text is shown in errors and in the log: it must
/// hold no secret.
///
/// See the example of [`Credentials`].
pub type LoginFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Login, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

/// Logins that change, such as the tokens of Amazon ElastiCache and RDS (IAM) or of Entra ID: see
/// [`LockManagerBuilder::credentials`](crate::LockManagerBuilder::credentials).
///
/// Closures that return a future are credentials: `|| async { Ok::<_, std::io::Error>(Login::password("…")) }`.
///
/// A type of your own:
///
/// ```no_run
/// use std::{fs, path::PathBuf};
/// use lock_runtime::{Credentials, LockManager, Login, LoginFuture};
///
/// /// A password in a file that something else replaces.
/// struct PasswordFile(PathBuf);
///
/// impl Credentials for PasswordFile {
///     fn login(&self) -> LoginFuture<'_> {
///         Box::pin(async {
///             let password = fs::read_to_string(&self.0)?;
///             Ok(Login::new("locks", password.trim_end()))
///         })
///     }
/// }
///
/// # async fn connect() -> Result<(), lock_runtime::LockError> {
/// let builder = LockManager::builder().credentials(PasswordFile("/run/secrets/redis".into()));
/// let locks = builder.connect("redis://10.0.0.1/").await?;
/// # Ok(())
/// # }
/// ```
pub trait Credentials: Send + Sync + 'static {
    /// The login for a connection that is about to be opened, or one that is open and whose login expires.
    ///
    /// It is asked on the runtime of the manager, once for each connection. Cache what is expensive to get.
    fn login(&self) -> LoginFuture<'_>;
}

impl<F, Fut, E> Credentials for F
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Login, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    fn login(&self) -> LoginFuture<'_> {
        let login = self();
        Box::pin(async move { login.await.map_err(Into::into) })
    }
}

/// The PEM texts of a chain and its private key.
pub(crate) type PemPair = (Vec<u8>, Vec<u8>);

/// Returns PEM texts as they are now. It is called whenever a connection is opened, because they may have been replaced.
pub(crate) type PemSource<T> = Arc<dyn Fn() -> Result<T, LockError> + Send + Sync>;

/// Returns a source that reads a file on the caller's thread: where threads for blocking work are all busy, connections are
/// still opened.
pub(crate) fn pem_file(path: PathBuf) -> PemSource<Vec<u8>> {
    Arc::new(move || {
        std::fs::read(&path).map_err(|error| {
            let path = path.display();
            config(format!(
                "the certificates' file {path} cannot be read: {error}"
            ))
        })
    })
}

/// Returns a source that reads a chain and its key.
pub(crate) fn pem_files(chain: PathBuf, key: PathBuf) -> PemSource<PemPair> {
    let (chain, key) = (pem_file(chain), pem_file(key));
    Arc::new(move || Ok((chain()?, key()?)))
}

/// The sources of PEM texts that a caller gave.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// The client's chain, and its private key.
    pub(crate) client: Option<PemSource<PemPair>>,
    /// The authorities to trust in place of the system's.
    pub(crate) root: Option<PemSource<Vec<u8>>>,
}

impl Certificates {
    pub(crate) fn are_given(&self) -> bool {
        self.client.is_some() || self.root.is_some()
    }
}

/// The handshakes that a builder was given.
#[derive(Clone, Default)]
pub(crate) struct Handshake {
    pub(crate) credentials: Option<Arc<dyn Credentials>>,
    pub(crate) certificates: Certificates,
}

impl Handshake {
    /// Refuses the options for a store without a handshake.
    pub(crate) fn refuse(&self, store: &str) -> Result<(), LockError> {
        if self.credentials.is_some() {
            return Err(config(format!("`credentials` have no use: {store}")));
        }
        if self.certificates.are_given() {
            return Err(config(format!("certificates have no use: {store}")));
        }
        Ok(())
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake")
            .field("credentials", &self.credentials.is_some())
            .field("client_certificate", &self.certificates.client.is_some())
            .field("root_certificate", &self.certificates.root.is_some())
            .finish()
    }
}
