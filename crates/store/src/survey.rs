//! Survey: positions of objects in the packs that differ from the index.
//!
//! In: the committed part of the packs. Out: positions that the index does not name. Needed only if an object
//! is missing or damaged. Built once per state of the packs: reading a thousand lost objects must not read
//! all packs a thousand times.

use crate::index::Place;
use crate::pack::{self, Found, PACK_HEAD_BYTES, Step};
use crate::{Store, StoreError, open};
use safepoint_model::ObjectId;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

/// Result of a walk through all packs.
pub(crate) struct Survey {
    /// The index that was asked. Another one may lack other objects.
    index: Option<(u64, u64)>,
    /// Packs, and the length up to which they were read.
    extent: Vec<(String, u64)>,
    places: HashMap<ObjectId, Vec<Place>>,
}

impl Survey {
    /// Returns the other positions of this object.
    pub(crate) fn places(&self, id: ObjectId) -> &[Place] {
        self.places.get(&id).map_or(&[], Vec::as_slice)
    }
}

impl Survey {
    /// Returns the identity of the index that was asked.
    pub(crate) fn index(&self) -> Option<(u64, u64)> {
        self.index
    }
}

impl Store {
    /// Returns the survey of the current packs.
    pub(crate) fn survey(&self) -> Result<Arc<Survey>, StoreError> {
        let (index, mut extent) = self.with_index(|index| Ok((index.identity(), index.packs()?)))?;
        extent.sort_unstable();
        // Packs that another process is reindexing have no row yet. Objects found there are hashed like all
        // others.
        let known: HashSet<&str> = extent.iter().map(|(name, _)| name.as_str()).collect();
        let mut unknown = open::list_packs(self.dir())?;
        unknown.retain(|(name, _)| !known.contains(name.as_str()));
        extent.extend(unknown);
        let mut surveyed = self.surveyed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*surveyed {
            Some(survey) if survey.extent == extent && survey.index == index => Ok(survey.clone()),
            _ => Ok(surveyed.insert(Arc::new(self.walk(index, extent)?)).clone()),
        }
    }

    fn walk(&self, index: Option<(u64, u64)>, extent: Vec<(String, u64)>) -> Result<Survey, StoreError> {
        let mut places = HashMap::new();
        for (name, len) in &extent {
            let Ok(file) = self.file(name) else { continue };
            let len = file.metadata().map_or(0, |meta| meta.len()).min(*len);
            let mut at = PACK_HEAD_BYTES;
            // The rest of an unreadable pack is skipped.
            while let Ok(Some(step)) = pack::next(&file, at, len) {
                at = match step {
                    Step::Gap { to } => to,
                    Step::Segment(found) => {
                        self.note(name, &found, &mut places)?;
                        found.end()
                    }
                };
            }
        }
        Ok(Survey { index, extent, places })
    }

    /// Records the objects of a segment that the index does not find there.
    fn note(
        &self,
        name: &str,
        found: &Found,
        places: &mut HashMap<ObjectId, Vec<Place>>,
    ) -> Result<(), StoreError> {
        for entry in &found.entries {
            let place = Place { pack: name.to_owned(), at: found.frame_at(entry), shape: entry.shape };
            if self.with_index(|index| index.find(entry.shape.id))?.as_ref() != Some(&place) {
                places.entry(entry.shape.id).or_default().push(place);
            }
        }
        Ok(())
    }
}
