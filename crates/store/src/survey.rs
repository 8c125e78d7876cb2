//! A survey: where the packs have objects that the index does not name, or names elsewhere.
//!
//! In: the packs, as far as they count. Out: the places that the index would not lead to.
//! Needed only where an object is missing or damaged, and made once for as long as no pack grows: to ask for a
//! thousand lost objects must not mean to read all packs a thousand times.

use crate::index::Place;
use crate::pack::{self, Found, PACK_HEAD_BYTES, Step};
use crate::{Store, StoreError, open};
use safepoint_model::ObjectId;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

/// What one walk through all packs found.
pub(crate) struct Survey {
    /// The packs, and how far they were read.
    extent: Vec<(String, u64)>,
    places: HashMap<ObjectId, Vec<Place>>,
}

impl Survey {
    /// Where else this object is.
    pub(crate) fn places(&self, id: ObjectId) -> &[Place] {
        self.places.get(&id).map_or(&[], Vec::as_slice)
    }
}

impl Store {
    /// The survey of the packs as they are now.
    pub(crate) fn survey(&self) -> Result<Arc<Survey>, StoreError> {
        let mut extent = self.with_index(|index| index.packs())?;
        extent.sort_unstable();
        // Packs that another process is just indexing anew have no row yet. What is found there is hashed like everything else.
        let known: HashSet<&str> = extent.iter().map(|(name, _)| name.as_str()).collect();
        let mut unknown = open::list_packs(self.dir())?;
        unknown.retain(|(name, _)| !known.contains(name.as_str()));
        extent.extend(unknown);
        let mut surveyed = self.surveyed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*surveyed {
            Some(survey) if survey.extent == extent => Ok(survey.clone()),
            _ => Ok(surveyed.insert(Arc::new(self.walk(extent)?)).clone()),
        }
    }

    fn walk(&self, extent: Vec<(String, u64)>) -> Result<Survey, StoreError> {
        let mut places = HashMap::new();
        for (name, len) in &extent {
            let Ok(file) = self.file(name) else { continue };
            let len = file.metadata().map_or(0, |meta| meta.len()).min(*len);
            let mut at = PACK_HEAD_BYTES;
            // A pack that cannot be read any further has nothing more to offer.
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
        Ok(Survey { extent, places })
    }

    /// Notes the objects of a segment to which the index would not lead.
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
