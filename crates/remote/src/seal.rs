//! Seal: optional encryption with age. Each pack is one age file; the records get keyed hashes and sealed
//! fields.
//!
//! The servers see lengths and numbers of packs alone. The key of the hashes comes from the first identity,
//! so that every machine of a project computes the same.

use crate::RemoteError;
use crate::environment::Secret;
use crate::name::Digest;
use age::secrecy::ExposeSecret;
use age::x25519::{Identity, Recipient};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::fmt;
use std::io::{self, Read, Write};

const HASH_CONTEXT: &str = "safepoint remote 1: keyed hashes";
const SEALED: &str = "sealed";

/// Keys of an encrypted remote.
#[derive(Clone)]
pub struct Seal {
    identities: Vec<Identity>,
    recipients: Vec<Recipient>,
    hash_key: [u8; 32],
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.recipients).finish()
    }
}

/// New key of an encrypted remote, as a file for age.
pub struct NewSeal {
    text: Secret,
    /// Public half.
    pub recipient: String,
}

impl NewSeal {
    /// Creates a random key.
    pub fn generate() -> Self {
        let identity = Identity::generate();
        let recipient = identity.to_public().to_string();
        let text = format!("# public key: {recipient}\n{}\n", identity.to_string().expose_secret());
        Self { text: Secret(text), recipient }
    }

    /// Returns the content of the identity file. It is a secret.
    pub fn secret_text(&self) -> &str {
        &self.text.0
    }
}

impl Seal {
    /// Reads the identity file of age (`age-keygen`), and the public keys of additional recipients.
    ///
    /// # Errors
    /// When the file has no X25519 identity, or a recipient is malformed. The error never has its content.
    pub fn read(identity_file: &str, recipients: &[String]) -> Result<Self, RemoteError> {
        let refused = |why: &str| RemoteError::damaged("the identity file", why);
        let mut identities = Vec::new();
        let mut first = None;
        for line in identity_file.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let identity: Identity =
                line.parse().map_err(|_| refused("a line is neither a comment nor an X25519 identity"))?;
            first.get_or_insert_with(|| blake3::derive_key(HASH_CONTEXT, line.as_bytes()));
            identities.push(identity);
        }
        let hash_key = first.ok_or_else(|| refused("it has no identity"))?;
        let mut all: Vec<Recipient> = identities.iter().map(Identity::to_public).collect();
        for text in recipients {
            let wrong = |_| {
                RemoteError::damaged(
                    format!("the recipient `{text}`"),
                    "it is not an X25519 public key of age",
                )
            };
            all.push(text.parse().map_err(wrong)?);
        }
        Ok(Self { identities, recipients: all, hash_key })
    }

    /// Returns a hash that cannot be computed without the key.
    pub(crate) fn keyed(&self, digest: Digest) -> Digest {
        Digest::from_bytes(blake3::keyed_hash(&self.hash_key, digest.as_bytes()).into())
    }

    /// Returns a text that stands for another one.
    pub(crate) fn keyed_text(&self, text: &str) -> String {
        blake3::keyed_hash(&self.hash_key, text.as_bytes()).to_hex().to_string()
    }

    /// Encrypts everything from `input`.
    pub(crate) fn encrypt(&self, input: &mut dyn Read, output: &mut dyn Write) -> io::Result<()> {
        let recipients = self.recipients.iter().map(|recipient| recipient as &dyn age::Recipient);
        let encryptor = age::Encryptor::with_recipients(recipients).map_err(io::Error::other)?;
        let mut writer = encryptor.wrap_output(output)?;
        io::copy(input, &mut writer)?;
        writer.finish()?;
        Ok(())
    }

    /// Decrypts everything from `input`.
    pub(crate) fn decrypt(
        &self,
        what: &str,
        input: &mut dyn Read,
        output: &mut dyn Write,
    ) -> Result<u64, RemoteError> {
        let refused = |error| match error {
            age::DecryptError::NoMatchingKeys => RemoteError::Sealed { what: what.to_owned() },
            _ => RemoteError::damaged(what, "it is not a file of age, or it is damaged"),
        };
        let decryptor = age::Decryptor::new(input).map_err(refused)?;
        let identities = self.identities.iter().map(|identity| identity as &dyn age::Identity);
        let mut reader = decryptor.decrypt(identities).map_err(refused)?;
        io::copy(&mut reader, output).map_err(|error| RemoteError::damaged(what, error.kind().to_string()))
    }

    /// Seals the fields of a row.
    pub(crate) fn seal_fields(&self, fields: &Value) -> Result<Value, RemoteError> {
        let plain = fields.to_string();
        let mut out = Vec::new();
        self.encrypt(&mut plain.as_bytes(), &mut out)
            .map_err(|error| RemoteError::damaged("the fields of a checkpoint", error.kind().to_string()))?;
        Ok(json!({ SEALED: BASE64.encode(out) }))
    }

    /// Opens the fields of a row. Fields that were never sealed are returned unchanged.
    pub(crate) fn open_fields(&self, fields: &Value) -> Result<Value, RemoteError> {
        let what = "the fields of a checkpoint";
        let Some(sealed) = fields.get(SEALED).and_then(Value::as_str) else { return Ok(fields.clone()) };
        let bytes = BASE64.decode(sealed).map_err(|_| RemoteError::damaged(what, "they are not base64"))?;
        let mut plain = Vec::new();
        self.decrypt(what, &mut bytes.as_slice(), &mut plain)?;
        serde_json::from_slice(&plain).map_err(|_| RemoteError::damaged(what, "they are not JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_identity_opens_what_was_sealed() {
        let key = NewSeal::generate();
        let seal = Seal::read(key.secret_text(), &[]).unwrap();
        let fields = json!({"label": "hunter2"});
        let sealed = seal.seal_fields(&fields).unwrap();
        assert!(!sealed.to_string().contains("hunter2"));
        assert_eq!(seal.open_fields(&sealed).unwrap(), fields);
        let other = Seal::read(NewSeal::generate().secret_text(), &[]).unwrap();
        assert!(matches!(other.open_fields(&sealed), Err(RemoteError::Sealed { .. })));
        assert_ne!(seal.keyed(Digest::NONE), other.keyed(Digest::NONE));
    }

    #[test]
    fn another_recipient_can_read_and_computes_other_hashes() {
        let (ours, theirs) = (NewSeal::generate(), NewSeal::generate());
        let seal = Seal::read(ours.secret_text(), std::slice::from_ref(&theirs.recipient)).unwrap();
        let mut out = Vec::new();
        seal.encrypt(&mut &b"bytes"[..], &mut out).unwrap();
        let theirs = Seal::read(theirs.secret_text(), &[]).unwrap();
        let mut plain = Vec::new();
        theirs.decrypt("it", &mut out.as_slice(), &mut plain).unwrap();
        assert_eq!(plain, b"bytes");
        let last = out.len() - 1;
        out[last] ^= 1;
        assert!(matches!(
            theirs.decrypt("it", &mut out.as_slice(), &mut Vec::new()),
            Err(RemoteError::Damaged { .. })
        ));
    }

    #[test]
    fn a_key_is_never_shown() {
        let key = NewSeal::generate();
        let secret = key.secret_text().lines().last().unwrap().to_owned();
        let seal = Seal::read(key.secret_text(), &[]).unwrap();
        assert!(!format!("{seal:?}").contains(&secret));
        let error = Seal::read(&format!("{secret}x"), &[]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(&secret));
    }
}
