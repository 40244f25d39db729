//! Errors that say why TLS with a server failed, and what to do about it.

use crate::backend::Fault;
use crate::values::StoreError;

/// Returns the fault for an error text of rustls. `plain` says how to connect without TLS.
pub(crate) fn explained(said: &str, plain: &str) -> Fault {
    if said.contains("InvalidContentType") {
        return Fault::Impossible(format!(
            "{}: what answers there does not speak TLS. {plain}",
            shown(said)
        ));
    }
    Fault::Denied(match advice(said) {
        Some(advice) => StoreError::new(format!("{}: {advice}", shown(said))),
        None => shown(said),
    })
}

fn shown(said: &str) -> StoreError {
    StoreError::shortened(&format!("TLS: {said}"))
}

/// Returns the advice for an error, which is recognised by names that rustls uses.
fn advice(said: &str) -> Option<&'static str> {
    let reasons: [(&[&str], &str); 6] = [
        // If a new authority has the name of an old one and another key, its signatures look like bad signatures of the
        // old authority.
        (
            &["UnknownIssuer", "BadSignature"],
            "have the operating system trust its authority, name the authority's file in SSL_CERT_FILE, or give it to \
             `root_certificate`",
        ),
        (
            &["not valid for name"],
            "the certificate has to name the URL's host, as a subject alternative name; connect by a name that it has",
        ),
        (
            &["CaUsedAsEndEntity"],
            "the server shows an authority's certificate; it needs one of its own, which an authority has signed",
        ),
        (
            &["expired"],
            "renew the server's certificate, and check this machine's clock",
        ),
        (&["not valid yet"], "check this machine's clock"),
        (
            &[
                "alert: UnknownCA",
                "alert: DecryptError",
                "alert: Certificate",
                "alert: BadCertificate",
            ],
            "the server wants a client's certificate of an authority that it trusts: see `client_certificate`",
        ),
    ];
    let is_it = |names: &[&str]| names.iter().any(|name| said.contains(name));
    let found = reasons.into_iter().find(|(names, _)| is_it(names));
    found.map(|(_, advice)| advice)
}
