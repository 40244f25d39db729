//! Sign-in.

use examples::{Failure, prove};
use redis::AsyncCommands;

use super::{Sites, at_once};
use crate::sign_in::{SESSION, session};

pub(super) async fn prove_all(sites: &Sites) -> Result<(), Failure> {
    let phone = "+4915112345";
    let code = sites[0].sign_in.new_code(phone).await?;
    let again = sites[1].sign_in.new_code(phone).await;
    prove(again.is_err(), "a phone gets one code a minute")?;

    let typed = code.clone();
    let sessions = at_once(sites, 30, move |site, _| {
        let code = typed.clone();
        async move { site.sign_in.sign_in(phone, &code).await }
    });
    let mut sessions: Vec<String> = sessions.await?.into_iter().flatten().collect();
    prove(
        sessions.len() == 1,
        "30 sign-ins with one code, in three processes at once: one session",
    )?;

    let token = sessions.remove(0);
    let user = sites[1].sign_in.user(&token).await?;
    let mut redis = sites[0].redis.clone();
    let () = redis.expire(session(&token), 60).await?;
    let same = sites[2].sign_in.user(&token).await?;
    let left: u64 = redis.ttl(session(&token)).await?;
    prove(
        user.is_some() && user == same && left > SESSION / 2,
        "every process knows the session, and its life of half an hour begins anew with each request",
    )?;
    sites[1].sign_in.sign_out(&token).await?;
    let user = sites[0].sign_in.user(&token).await?;
    prove(user.is_none(), "after the sign-out, no process knows it")?;

    let phone = "+4915154321";
    let code = sites[0].sign_in.new_code(phone).await?;
    let guesses = at_once(sites, 5, move |site, _| async move {
        site.sign_in.sign_in(phone, "guess").await
    });
    let right = sites[1].sign_in.sign_in(phone, &code);
    prove(
        guesses.await?.iter().all(Result::is_err) && right.await.is_err(),
        "after five wrong guesses, the right code is refused, too",
    )
}
