//! Ids of sessions and events.

use super::{CodingAgent, Moment};
use safepoint_model::id::SessionId;
use std::fmt;

/// Namespace of session ids that are not UUIDs (RFC 9562, section 5.5). Never changes: records hold its ids.
const NAMESPACE: u128 = 0x5afe_9017_a6e7_4d5e_8551_0715_0f0d_ca7a;

/// Session of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSession {
    /// Id in Safepoint: the agent's own UUID, or a UUIDv5 of its id.
    pub id: SessionId,
    /// Id as the agent writes it.
    pub original: String,
}

impl AgentSession {
    /// Returns the session with the agent's id.
    pub fn new(agent: CodingAgent, original: &str) -> Self {
        // The ULID form is not taken: an agent's id of 26 letters is not one of ours.
        let uuid = (original.len() == 36).then(|| original.parse().ok()).flatten();
        let id = uuid.unwrap_or_else(|| SessionId::from_bits(version_5(agent, original)));
        Self { id, original: original.to_owned() }
    }
}

/// Returns the UUIDv5 of a name.
fn version_5(agent: CodingAgent, original: &str) -> u128 {
    let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
    hasher.update(&NAMESPACE.to_be_bytes());
    hasher.update(agent.name().as_bytes());
    hasher.update(b":");
    hasher.update(original.as_bytes());
    let mut bytes = [0; 16];
    match hasher.try_finalize() {
        Ok(digest) => bytes.copy_from_slice(&digest.as_slice()[..16]),
        // A name built to collide in SHA-1 gets an id by another hash.
        Err(_) => bytes.copy_from_slice(&blake3::hash(original.as_bytes()).as_bytes()[..16]),
    }
    let bits = u128::from_be_bytes(bytes);
    let version = bits & !(0xf << 76) | 5 << 76;
    version & !(0b11 << 62) | 0b10 << 62
}

/// Key of an event: equal for two deliveries of the same event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventKey([u8; 32]);

impl EventKey {
    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the key of session, moment and call, or without a call of the whole input.
    pub(super) fn new(
        session: Option<&AgentSession>,
        moment: &Moment,
        call: Option<&str>,
        input: blake3::Hash,
    ) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("safepoint hook event 1");
        let mut add = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        add(&session.map_or(0u128, |session| session.id.bits()).to_le_bytes());
        add(moment.word().as_bytes());
        match call {
            Some(id) => add(id.as_bytes()),
            None => add(input.as_bytes()),
        }
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_kept_and_any_other_id_becomes_a_version_5_uuid() {
        let uuid = "57858edd-f386-4b85-b6ba-76f742d12643";
        assert_eq!(AgentSession::new(CodingAgent::Claude, uuid).id.to_uuid(), uuid);
        for original in ["ses_e1e3fbd9affeL9XYcSFb3uYxBh", "", "01JCXY0000ABCDEFGHJKMNPQRS", "\u{1f600}"] {
            let session = AgentSession::new(CodingAgent::Opencode, original);
            let text = session.id.to_uuid();
            assert_eq!((&text[14..15], session.original.as_str()), ("5", original), "{text}");
            assert!("89ab".contains(&text[19..20]), "{text}");
            assert_eq!(session, AgentSession::new(CodingAgent::Opencode, original));
            assert_ne!(session.id, AgentSession::new(CodingAgent::Gemini, original).id);
        }
        // Computed with Python: uuid5(UUID(int=NAMESPACE), "opencode:ses_1").
        assert_eq!(
            AgentSession::new(CodingAgent::Opencode, "ses_1").id.to_uuid(),
            "2e19dd4b-ce89-577d-9dd5-b056ac7fb58c"
        );
    }
}
