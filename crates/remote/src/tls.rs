//! TLS: certificates are always verified, against those of the system.

use crate::RemoteError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;

/// Returns a configuration that trusts the certificates of the system, or those in `roots`.
pub(crate) fn configuration(what: &'static str, roots: Option<&Path>) -> Result<ClientConfig, RemoteError> {
    let mut trusted = RootCertStore::empty();
    match roots {
        Some(path) => {
            let wrong =
                |_| RemoteError::Address { what, why: format!("{} has no certificates", path.display()) };
            for certificate in CertificateDer::pem_file_iter(path).map_err(wrong)? {
                trusted.add(certificate.map_err(wrong)?).map_err(|error| RemoteError::Address {
                    what,
                    why: format!("a certificate in {} is invalid: {error}", path.display()),
                })?;
            }
        }
        None => {
            // An unreadable one matters only if it is needed, and then the handshake fails.
            trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| RemoteError::Address { what, why: error.to_string() })?;
    Ok(builder.with_root_certificates(trusted).with_no_client_auth())
}
