//! Sign-in over several processes: a code by phone, then a session that every process knows.
//!
//! | key | what it is |
//! | --- | --- |
//! | `site:code:{phone}` | a hash with the code and the wrong tries, for 5 minutes |
//! | `site:code:{phone}:asked` | there for a minute after a code was sent: no second one meanwhile |
//! | `site:session:{token}` | the user, for 30 minutes after the last request |
//!
//! No lock. What must not happen twice, the use of a code, is one script (`check_code.lua`), and Redis runs one script at
//! a time. The row of a new user is one statement with a unique phone, so two first sign-ins make one user.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use examples::Sqlite;
use redis::{AsyncCommands, ExistenceCheck, Script, SetExpiry, SetOptions};
use uuid::Uuid;

use lock_runtime::Ids;

use crate::error::Error;
use crate::site::{Redis, Site};

pub(crate) const SCHEMA: &str =
    "CREATE TABLE users (id INTEGER PRIMARY KEY, phone TEXT NOT NULL UNIQUE);";

/// Lives in seconds.
const CODE: u64 = 300;
const BETWEEN_CODES: u64 = 60;
pub(crate) const SESSION: u64 = 1800;

#[derive(Clone)]
pub(crate) struct SignIn {
    pub(crate) redis: Redis,
    pub(crate) database: Sqlite,
    pub(crate) ids: Ids,
}

impl SignIn {
    /// Makes a code, which the caller sends to the phone. At most one a minute, or an attacker would ask for new codes
    /// instead of guessing one five times.
    pub(crate) async fn new_code(&self, phone: &str) -> Result<String, Error> {
        let digits = phone.strip_prefix('+').unwrap_or(phone);
        if !(6..=15).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Error::Refused(StatusCode::BAD_REQUEST, "no phone number"));
        }
        let mut redis = self.redis.clone();
        let once = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::EX(BETWEEN_CODES));
        let asked = format!("site:code:{phone}:asked");
        if !redis.set_options::<_, _, bool>(asked, 1, once).await? {
            let why = "wait a minute before you ask for another code";
            return Err(Error::Refused(StatusCode::TOO_MANY_REQUESTS, why));
        }
        // From the random numbers of the system, for nobody may guess it.
        let code = format!("{:06}", Uuid::new_v4().as_u128() % 1_000_000);
        let key = format!("site:code:{phone}");
        redis::pipe()
            .atomic()
            .del(&key)
            .hset(&key, "code", &code)
            .expire(&key, CODE as i64)
            .exec_async(&mut redis)
            .await?;
        Ok(code)
    }

    /// Returns the token of a new session if the code is right. A code is good for one session and for five tries.
    pub(crate) async fn sign_in(&self, phone: &str, code: &str) -> Result<String, Error> {
        let mut redis = self.redis.clone();
        let check = Script::new(include_str!("check_code.lua"));
        let key = format!("site:code:{phone}");
        let is_right: bool = check.key(key).arg(code).invoke_async(&mut redis).await?;
        if !is_right {
            return Err(Error::Refused(StatusCode::FORBIDDEN, "not the code"));
        }
        let (id, phone) = (self.ids.next().await?, phone.to_owned());
        let insert = "INSERT INTO users VALUES (?1, ?2)
            ON CONFLICT (phone) DO UPDATE SET phone = excluded.phone RETURNING id";
        let user: i64 = self
            .database
            .call(move |connection| connection.query_row(insert, (id, phone), |row| row.get(0)))
            .await?;
        let token = Uuid::new_v4().simple().to_string();
        let () = redis.set_ex(session(&token), user, SESSION).await?;
        Ok(token)
    }

    /// Returns the user of a session, which lives on for another half an hour.
    pub(crate) async fn user(&self, token: &str) -> Result<Option<i64>, Error> {
        let mut redis = self.redis.clone();
        let expiry = redis::Expiry::EX(SESSION);
        Ok(redis.get_ex(session(token), expiry).await?)
    }

    pub(crate) async fn sign_out(&self, token: &str) -> Result<(), Error> {
        Ok(self.redis.clone().del(session(token)).await?)
    }
}

pub(crate) fn session(token: &str) -> String {
    format!("site:session:{token}")
}

/// The token in the cookie `session`.
pub(crate) fn token(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get(header::COOKIE)?.to_str().ok()?.split(';');
    let mut pairs = cookies.filter_map(|cookie| cookie.trim().split_once('='));
    let (_, token) = pairs.find(|(name, _)| *name == "session")?;
    Some(token)
}

/// The signed-in user of a request. A handler that takes it as an argument answers 401 to everybody else.
#[derive(Clone, Copy)]
pub(crate) struct User(pub(crate) i64);

impl FromRequestParts<Site> for User {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &Site) -> Result<User, Error> {
        let user = parts.extensions.get().copied();
        user.ok_or(Error::Refused(StatusCode::UNAUTHORIZED, "sign in first"))
    }
}

/// The middleware around every route: it finds the user, and extends the session whichever path is asked for.
pub(crate) async fn extend_session(
    State(site): State<Site>,
    mut request: Request,
    next: Next,
) -> Result<Response, Error> {
    if let Some(token) = token(request.headers())
        && let Some(user) = site.sign_in.user(token).await?
    {
        request.extensions_mut().insert(User(user));
    }
    Ok(next.run(request).await)
}
