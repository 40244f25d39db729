//! Channel binding, which ties a login to the connection that it was made on: the hash of the server's certificate
//! (`tls-server-end-point`, RFC 5929).

use rustls::crypto::hash::HashAlgorithm;
use rustls::crypto::ring::ALL_CIPHER_SUITES;

/// Returns the hash of a certificate. Returns `None` if the certificate is signed with a hash that TLS itself does not
/// use, such as SHA-512, or by an algorithm that names no hash, such as Ed25519.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let wanted = hash_of(signature_algorithm(certificate)?)?;
    let mut suites = ALL_CIPHER_SUITES.iter().filter_map(|suite| suite.tls13());
    let suite = suites.find(|suite| suite.common.hash_provider.algorithm() == wanted)?;
    let hash = suite.common.hash_provider.hash(certificate);
    Some(hash.as_ref().to_vec())
}

/// Returns the bytes of the identifier of the algorithm by which a certificate is signed.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const IDENTIFIER: u8 = 0x06;
    let (parts, _) = element(certificate, SEQUENCE)?;
    let (_signed, parts) = element(parts, SEQUENCE)?;
    let (algorithm, _) = element(parts, SEQUENCE)?;
    let (identifier, _) = element(algorithm, IDENTIFIER)?;
    Some(identifier)
}

/// Returns the content of the first element of some DER data, if the element has this tag, and the bytes after it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let bytes = rest.get(..usize::from(first & 0x7f))?;
        rest = &rest[bytes.len()..];
        length = match bytes.len() {
            1..=4 => bytes
                .iter()
                .fold(0, |length, &byte| length << 8 | usize::from(byte)),
            _ => return None,
        };
    }
    (found == tag && length <= rest.len()).then(|| rest.split_at(length))
}

fn hash_of(identifier: &[u8]) -> Option<HashAlgorithm> {
    // Signatures with RSA are 1.2.840.113549.1.1 and one more byte; those with ECDSA are 1.2.840.10045.4.3 and one
    // more.
    const RSA: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    match (
        identifier.strip_prefix(&RSA),
        identifier.strip_prefix(&ECDSA),
    ) {
        // RFC 5929 replaces MD5 and SHA-1 by SHA-256.
        (Some([4 | 5 | 11]), _) | (_, Some([2])) => Some(HashAlgorithm::SHA256),
        (Some([12]), _) | (_, Some([3])) => Some(HashAlgorithm::SHA384),
        _ => None,
    }
}
