//! State of a git repository in a layout: its document, the list of refs, and the exact index.
//!
//! It is restored only if requested by name, and only if the commit is in the repository. Names and digits
//! are still checked: the layout is untrusted.

use super::reading::{DOCUMENT, Reading};
use super::rows::ContentRow;
use super::{LIST_BYTES_MAX, LayoutError, beside};
use crate::Error;
use safepoint_model::checkpoint::{PartKind, PartRecord};
use safepoint_model::content::Content;
use safepoint_model::git::{GitDocument, GitRefs, GitTarget};
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSink, ObjectSource, RelPath, document};

/// Suffixes of the two files beside the document.
pub(super) const REFS: &str = ".refs.json";
pub(super) const INDEX: &str = ".index";

/// Serialized state of a repository.
pub(super) struct State {
    pub(super) document: Vec<u8>,
    pub(super) refs: Vec<u8>,
    pub(super) index: Option<Vec<u8>>,
}

/// Loads a recorded state, without planned rollback moves, which concern only the original machine.
pub(super) fn load(source: &dyn ObjectSource, id: ObjectId) -> Result<State, Error> {
    let state = GitDocument { moves: None, ..GitDocument::load(source, id)? };
    let index = state.index.map(|kept| -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        crate::checkpoint::find::write_content(source, &Content::from(kept), &mut bytes)?;
        Ok(bytes)
    });
    Ok(State {
        refs: source.get(ObjectKind::Document, state.refs)?,
        index: index.transpose()?,
        document: document::encode(&state)?,
    })
}

/// Imports the state of a repository as a part with this key.
pub(super) fn take(
    reading: &mut Reading,
    row: &ContentRow,
    key: String,
    sink: &dyn ObjectSink,
) -> Result<PartRecord, Error> {
    let bad = |why: &str| LayoutError::bad(&row.path, why);
    let state: GitDocument = reading.document(&row.path, DOCUMENT)?;
    if state.format != GitDocument::FORMAT || state.moves.is_some() {
        return Err(bad("it is not the state of a repository as it is known today").into());
    }
    let digits = match state.object_format.as_str() {
        "sha1" => 40,
        "sha256" => 64,
        _ => return Err(bad("it names objects in a way that git does not").into()),
    };
    let commits = [
        state.commit.as_ref(),
        match &state.head {
            GitTarget::Id(id) => Some(id),
            GitTarget::Ref(_) => None,
        },
    ];
    if commits.into_iter().flatten().any(|id| !is_id(id, digits)) {
        return Err(bad("its commit has no name").into());
    }
    let placed = match &state.head {
        GitTarget::Ref(name) => is_ref(name) && name.as_bytes().starts_with(b"refs/heads/"),
        GitTarget::Id(id) => state.commit.as_ref() == Some(id),
    };
    if !placed || state.operation.as_ref().is_some_and(|operation| operation.len() > 64) {
        return Err(bad("HEAD is nowhere that it can be").into());
    }
    let file = beside(&row.path, REFS);
    let refs: GitRefs = reading.document(&file, LIST_BYTES_MAX)?;
    for (name, target) in &refs {
        let sound = match target {
            GitTarget::Id(id) => is_id(id, digits),
            GitTarget::Ref(name) => is_ref(name),
        };
        if !sound || !is_ref(name) {
            return Err(LayoutError::bad(&file, format!("{name} is no ref")).into());
        }
    }
    let refs = document::store(sink, &refs)?;
    if refs != state.refs {
        return Err(LayoutError::bad(&file, "it is not the list of refs that was noted").into());
    }
    let index = match state.index {
        Some(_) => Some(take_index(reading, &beside(&row.path, INDEX), sink)?),
        None => None,
    };
    let document = document::store(sink, &GitDocument { refs, index, ..state })?;
    Ok(PartRecord { kind: PartKind::Git, key, document })
}

fn take_index(
    reading: &mut Reading,
    file: &RelPath,
    sink: &dyn ObjectSink,
) -> Result<safepoint_model::git::KeptBytes, Error> {
    let bytes = reading.bytes(file, LIST_BYTES_MAX)?;
    // Signature, version, and minimum length (gitformat-index(5)).
    let version = bytes
        .get(4..8)
        .map(|version| version == [0, 0, 0, 2] || version == [0, 0, 0, 3] || version == [0, 0, 0, 4]);
    if !bytes.starts_with(b"DIRC") || version != Some(true) || bytes.len() < 32 {
        return Err(LayoutError::bad(file, "it is no index of git").into());
    }
    let kept = sink.put_content(bytes.len() as u64, &mut bytes.as_slice());
    Ok(kept.map_err(|error: ObjectError| Error::from(error))?.into())
}

fn is_id(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns true if git accepts it as a full ref name (git-check-ref-format(1)).
fn is_ref(name: &RelPath) -> bool {
    let bytes = name.as_bytes();
    let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    bytes.starts_with(b"refs/")
        && !has(b"..")
        && !has(b"@{")
        && !bytes.ends_with(b".")
        && bytes.iter().all(|byte| *byte > b' ' && *byte != 0x7f && !b"~^:?*[\\".contains(byte))
        && name.names().all(|part| !part.starts_with(b".") && !part.ends_with(b".lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ref_is_what_git_says_it_is() {
        let is = |name: &str| is_ref(&RelPath::new(name).unwrap());
        for good in
            ["refs/heads/main", "refs/tags/v1.0", "refs/heads/a/b-c_d", "refs/stash", "refs/heads/\u{fc}"]
        {
            assert!(is(good), "{good}");
        }
        for bad in [
            "HEAD",
            "config",
            "hooks/post-checkout",
            "refs/heads/.x",
            "refs/heads/a..b",
            "refs/heads/a.lock",
            "refs/heads/a b",
            "refs/heads/a~1",
            "refs/heads/a^",
            "refs/heads/a:b",
            "refs/heads/a@{1}",
            "refs/heads/a.",
            "refs/heads/a\n",
            "refs/heads/a\\b",
            "refs/a.lock/b",
            "refs/heads/\u{7f}",
        ] {
            assert!(!is(bad), "{bad:?}");
        }
        assert!(is_id(&"a0".repeat(20), 40) && !is_id(&"A0".repeat(20), 40) && !is_id(&"a0".repeat(20), 64));
    }
}
