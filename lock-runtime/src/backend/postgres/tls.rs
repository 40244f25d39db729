//! TLS by rustls. A server that cannot be verified is not connected to.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::channel_binding::end_point;
use crate::backend::Fault;
use crate::backend::kit::certificates::{client, client_of, given_authorities, roots_of, shown};
use crate::backend::kit::tls_refusal;
use crate::backend::sql::Encryption;
use crate::values::{Certificates, LockError, config};

/// The ALPN protocol that servers which speak TLS from the first byte are asked for.
const PROTOCOL: &[u8] = b"postgresql";

/// The settings by which TLS begins on a connection. Without a configuration, no connection asks for TLS.
#[derive(Clone, Default)]
pub(crate) struct Tls(Option<Arc<ClientConfig>>);

/// See [`HostSettings::tls`](crate::backend::sql::url::HostSettings::tls).
pub(super) fn settings(
    encryption: Encryption,
    certificates: &Certificates,
) -> Result<Tls, LockError> {
    let mut tls = match encryption {
        Encryption::Off => return Ok(Tls::default()),
        Encryption::Verified => client(certificates)?,
        Encryption::OfAuthority => {
            // Anybody can get a certificate from an authority that everybody trusts, so without the name the
            // certificate proves nothing.
            let given = given_authorities(certificates)?.ok_or_else(|| {
                config(
                    "`sslmode=verify-ca` accepts any name that the authorities vouch for, and so is for authorities \
                     of your own: give them to `root_certificate`, or say `sslmode=verify-full`",
                )
            })?;
            let roots = roots_of(&given)?;
            let mut tls = client_of(roots.clone(), shown(certificates)?.as_ref())?;
            let (roots, provider) = (Arc::new(roots), tls.crypto_provider().clone());
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
            let verifier = verifier
                .map_err(|error| config(format!("the root certificate is of no use: {error}")))?;
            tls.dangerous()
                .set_certificate_verifier(Arc::new(AnyName(verifier)));
            tls
        }
    };
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Tls(Some(Arc::new(tls))))
}

/// Returns the fault of an error that came from rustls, or that says that the server has no TLS.
pub(super) fn refusal(error: &tokio_postgres::Error) -> Option<Fault> {
    let cause = std::error::Error::source(error)?;
    let io = cause.downcast_ref::<io::Error>();
    let refused = io.and_then(|io| io.get_ref()?.downcast_ref::<rustls::Error>());
    if let Some(refused) = refused {
        let plain = "If it speaks none, say `sslmode=disable`";
        return Some(tls_refusal::explained(&refused.to_string(), plain));
    }
    (cause.to_string() == "server does not support TLS").then(|| {
        Fault::impossible("the server has no TLS: set `ssl = on` there, or say `sslmode=disable` if nobody can read along")
    })
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = TlsHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<TlsHandshake> {
        Ok(TlsHandshake {
            tls: self.clone(),
            host: host.to_owned(),
        })
    }
}

/// A connection to a host that is about to begin TLS.
pub(crate) struct TlsHandshake {
    tls: Tls,
    host: String,
}

impl TlsConnect<Socket> for TlsHandshake {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let Tls(Some(tls)) = self.tls else {
                return Err(io::Error::other("TLS was not asked for"));
            };
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            let stream = TlsConnector::from(tls)
                .connect(name, Candid(socket))
                .await?;
            Ok(Candid(Box::new(stream)))
        })
    }
}

/// A TLS connection. The outer `Candid` discards nothing: after the inner one, no write fails because the other side has
/// closed the connection.
pub(crate) type Encrypted = Candid<Box<tokio_rustls::client::TlsStream<Candid<Socket>>>>;

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        let (_, session) = self.0.get_ref();
        let shown = session.peer_certificates().and_then(<[_]>::first);
        match shown.and_then(|certificate| end_point(certificate)) {
            Some(hash) => ChannelBinding::tls_server_end_point(hash),
            None => ChannelBinding::none(),
        }
    }
}

/// A stream that accepts and discards what is written after the other side has closed it. A server that refuses a
/// client's certificate says so and closes while the client still writes. The client should read the reason, and not
/// fail before that.
pub(crate) struct Candid<T>(T);

impl<T: AsyncRead + Unpin> AsyncRead for Candid<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Candid<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.0).poll_write(cx, bytes) {
            Poll::Ready(Err(error))
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) =>
            {
                Poll::Ready(Ok(bytes.len()))
            }
            written => written,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// A verifier of everything except the server's name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.0
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The verifier checks the name last, so everything else was in order.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
