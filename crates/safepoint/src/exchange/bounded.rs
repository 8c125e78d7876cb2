//! List with a length limit during parsing, so that a few bytes of JSON cannot fill the memory.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// List of at most `MAX` items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bounded<T, const MAX: usize>(pub(super) Vec<T>);

impl<T, const MAX: usize> Default for Bounded<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

struct Items<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
    type Value = Bounded<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            if items.len() == MAX {
                return Err(A::Error::custom(format!("a list has more than {MAX} items")));
            }
            items.push(item);
        }
        Ok(Bounded(items))
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_be_as_long_as_the_limit_and_no_longer() {
        let read = |text: &str| serde_json::from_str::<Bounded<u8, 3>>(text);
        assert_eq!(read("[1,2,3]").unwrap().0, [1, 2, 3]);
        assert!(read("[1,2,3,4]").unwrap_err().to_string().contains("more than 3"));
        assert!(read("{}").unwrap_err().to_string().contains("a list of at most 3"));
        assert!(Bounded::<u8, 3>::default().0.is_empty());
    }
}
