//! Short form of path lists: a folder completely added or removed is one line.

use safepoint::model::RelPath;

/// Line: its item, and the number of folded items below it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Folded {
    pub(crate) item: usize,
    pub(crate) below: u64,
}

/// Folds nested items with the same change, parents before children.
pub(crate) fn folded<'a, F: PartialEq>(items: impl Iterator<Item = (&'a RelPath, F)>) -> Vec<Folded> {
    let mut lines: Vec<Folded> = Vec::new();
    let mut top: Option<(&RelPath, F)> = None;
    for (item, (path, fate)) in items.enumerate() {
        match (&top, lines.last_mut()) {
            (Some((above, same)), Some(line)) if *same == fate && path.is_within(above) => line.below += 1,
            _ => {
                lines.push(Folded { item, below: 0 });
                top = Some((path, fate));
            }
        }
    }
    lines
}

impl Folded {
    /// Suffix of the path with the number of items below, if any.
    pub(crate) fn tail(&self) -> String {
        if self.below == 0 { String::new() } else { format!("/ and {} below it", self.below) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_shares_its_fate_is_folded() {
        let paths: Vec<(RelPath, char)> =
            [("a", '+'), ("a/b", '+'), ("a/c", '-'), ("ab", '-'), ("d", '-'), ("d/e", '-'), ("d/f", '-')]
                .map(|(path, fate)| (RelPath::new(path).unwrap(), fate))
                .into();
        let lines = folded(paths.iter().map(|(path, fate)| (path, *fate)));
        let told: Vec<(usize, u64)> = lines.iter().map(|line| (line.item, line.below)).collect();
        assert_eq!(told, [(0, 1), (2, 0), (3, 0), (4, 2)]);
        assert_eq!((lines[0].tail(), lines[1].tail()), ("/ and 1 below it".to_owned(), String::new()));
    }
}
