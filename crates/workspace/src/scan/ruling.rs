//! Rules of a directory, from its names and the rules above it: they decide its captured entries.

use super::{Found, Here, Walk, What};
use crate::error::WorkspaceError;
use crate::linux::{self, Facts, Names};
use crate::rules::{RULES_BYTES_MAX, RULES_FILE, Rules};
use rustix::fd::OwnedFd;
use safepoint_model::coverage::Why;
use safepoint_model::tree::{Entry, Node, Tree};
use safepoint_model::{ObjectError, ObjectId, ObjectSource};
use std::io::{self, Read};
use std::sync::OnceLock;

/// First bytes of a `CACHEDIR.TAG` (bford.info/cachedir).
pub(super) const CACHE_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// Counterpart, in the tree to keep, of the directory being walked. Loaded only when a rule leaves an entry
/// out, which is rare.
pub(super) struct Keep<'a> {
    above: Above<'a>,
    tree: OnceLock<Option<Tree>>,
}

/// Location of a directory in the tree to keep.
pub(super) enum Above<'a> {
    /// Root directory.
    Root(Option<ObjectId>),
    Below(&'a Keep<'a>, &'a [u8]),
}

impl<'a> Keep<'a> {
    pub(super) fn new(above: Above<'a>) -> Self {
        Self { above, tree: OnceLock::new() }
    }

    pub(super) fn tree(&self, source: &dyn ObjectSource) -> Result<Option<&Tree>, ObjectError> {
        if let Some(tree) = self.tree.get() {
            return Ok(tree.as_ref());
        }
        let id = match self.above {
            Above::Root(id) => id,
            Above::Below(above, name) => match above.entry(source, name)?.map(|entry| &entry.node) {
                Some(Node::Directory(tree)) => Some(*tree),
                _ => None,
            },
        };
        let tree = id.map(|id| Tree::load(source, id)).transpose()?;
        Ok(self.tree.get_or_init(|| tree).as_ref())
    }

    pub(super) fn entry(
        &self,
        source: &dyn ObjectSource,
        name: &[u8],
    ) -> Result<Option<&Entry>, ObjectError> {
        Ok(self.tree(source)?.and_then(|tree| tree.get(name)))
    }
}

/// Rules that decided the captured entries of a directory.
#[derive(PartialEq)]
pub(super) struct Ruling {
    /// Only kept entries are captured: because of a parent, and because of its own content.
    pub(super) only_kept: (bool, bool),
    file: Option<Box<RulesFile>>,
}

impl Ruling {
    /// Returns the rules inside the directory, given those outside.
    pub(super) fn rules<'r>(&'r self, outside: &'r Rules) -> &'r Rules {
        self.file.as_ref().map_or(outside, |file| &file.rules)
    }
}

/// Rules file of a directory, and the resulting rules.
struct RulesFile {
    facts: Option<Facts>,
    rules: Rules,
}

impl PartialEq for RulesFile {
    fn eq(&self, other: &Self) -> bool {
        self.facts.is_some() && self.facts == other.facts
    }
}

impl Walk<'_> {
    /// Determines the rules of a directory from its entries; the inner error is the reason to leave it out.
    pub(super) fn rule(
        &self,
        here: &mut Here<'_>,
        names: &Names,
        found: &mut Found,
    ) -> Result<Result<Ruling, Why>, WorkspaceError> {
        let outer = here.only_kept;
        if let Some(layer) = &self.layer {
            if here.depth > 0 && linux::hides_lower(&here.fd) {
                here.below = Keep::new(Above::Root(None));
                found.notes.opaque.push(here.path.clone());
            } else if let Some(why) = layer.left_out(&here.path) {
                // An exclusion of the base stays excluded: its mark may lie in the lower directory.
                return Ok(Err(why));
            }
        }
        if here.depth > 0 && self.what == What::Files && is_cache(&here.fd, names) && !here.only_kept {
            if here.keep.tree(self.source)?.is_none() && !self.covers(&here.path) {
                return Ok(Err(Why::CacheDirectory));
            }
            here.only_kept = true;
        }
        let file = self.read_rules(here, names, found);
        Ok(Ok(Ruling { only_kept: (outer, here.only_kept), file }))
    }

    /// Adds the rules of the directory's own file, if any.
    fn read_rules(&self, here: &mut Here<'_>, names: &Names, found: &mut Found) -> Option<Box<RulesFile>> {
        if self.what == What::Git {
            return None;
        }
        if names.find(RULES_FILE).is_none() {
            return self.rules_below(here, found);
        }
        let facts = linux::facts_at(&here.fd, RULES_FILE).ok();
        if self.layer.is_some() && facts.is_some_and(|facts| facts.is_whiteout) {
            return None;
        }
        match read_start(&here.fd, RULES_FILE, RULES_BYTES_MAX) {
            Ok(text) => {
                let (rules, problems) = here.rules.with_file(&here.path, &text);
                here.rules = rules;
                found.notes.warnings.extend(problems);
            }
            Err(error) => found.notes.warnings.push(format!("{}/.safepointignore: {error}", here.path)),
        }
        Some(Box::new(RulesFile { facts, rules: here.rules.clone() }))
    }

    /// Adds the rules of the directory below a layer, which does not change.
    fn rules_below(&self, here: &mut Here<'_>, found: &mut Found) -> Option<Box<RulesFile>> {
        self.layer?;
        let Ok(Some(Node::File(content))) =
            here.below.entry(self.source, RULES_FILE).map(|entry| entry.map(|entry| entry.node.clone()))
        else {
            return None;
        };
        if content.size > RULES_BYTES_MAX {
            return None;
        }
        let mut text = Vec::new();
        let read = content.read::<ObjectError>(self.source, &mut |bytes| {
            text.extend_from_slice(bytes);
            Ok(())
        });
        match read {
            Ok(()) => {
                let (rules, problems) = here.rules.with_file(&here.path, &text);
                here.rules = rules;
                found.notes.warnings.extend(problems);
            }
            Err(error) => found.notes.warnings.push(format!("{}/.safepointignore: {error}", here.path)),
        }
        Some(Box::new(RulesFile { facts: linux::facts_of(&here.fd).ok(), rules: here.rules.clone() }))
    }
}

/// Returns true if a `CACHEDIR.TAG` marks the directory.
pub(crate) fn is_cache(fd: &OwnedFd, names: &Names) -> bool {
    let tag: &[u8] = b"CACHEDIR.TAG";
    names.find(tag).is_some()
        && read_start(fd, tag, CACHE_SIGNATURE.len() as u64).is_ok_and(|start| start == CACHE_SIGNATURE)
}

/// Reads the first bytes of a regular file.
pub(crate) fn read_start(dir: &OwnedFd, name: &[u8], bytes_max: u64) -> io::Result<Vec<u8>> {
    let fd = linux::open_file(dir, name)?;
    if !linux::facts_of(&fd)?.file_type.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut start = Vec::new();
    std::fs::File::from(fd).take(bytes_max).read_to_end(&mut start)?;
    Ok(start)
}
