//! Graph of related items, drawn beside their list, newest first.
//!
//! Input: each item with its parent. Output: the symbols to the left of each item, all of the same width.
//! Each line has its own column, from an item without children down to its branch point.

use std::collections::HashSet;
use std::hash::Hash;

/// Symbols of the graph.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signs {
    pub(crate) line: char,
    pub(crate) across: char,
    pub(crate) cross: char,
    pub(crate) fork: char,
    pub(crate) joint: char,
    pub(crate) end: char,
    /// Checkpoint that the user requested.
    pub(crate) made: char,
    /// Automatic checkpoint.
    pub(crate) own: char,
    /// Current state of the workspace.
    pub(crate) here: char,
    pub(crate) arrow: &'static str,
}

/// Unicode symbols.
pub(crate) const UNICODE: Signs = Signs {
    line: '│',
    across: '─',
    cross: '┼',
    fork: '├',
    joint: '┴',
    end: '╯',
    made: '○',
    own: '·',
    here: '●',
    arrow: "→",
};

/// ASCII symbols.
pub(crate) const ASCII: Signs = Signs {
    line: '|',
    across: '-',
    cross: '+',
    fork: '|',
    joint: '^',
    end: '\'',
    made: 'o',
    own: '.',
    here: '*',
    arrow: "->",
};

/// Item.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<T> {
    pub(crate) id: T,
    pub(crate) parent: Option<T>,
    pub(crate) sign: char,
}

/// Symbols to the left of one item.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    /// Separate row above it, where lines join.
    pub(crate) above: Option<String>,
    pub(crate) beside: String,
}

pub(crate) fn draw<T: Copy + Eq + Hash>(nodes: &[Node<T>], signs: Signs) -> Vec<Drawn> {
    let listed: HashSet<T> = nodes.iter().map(|node| node.id).collect();
    let mut lanes: Vec<Option<T>> = Vec::new();
    let mut drawn: Vec<Drawn> = Vec::new();
    for node in nodes {
        let mine: Vec<usize> = (0..lanes.len()).filter(|at| lanes[*at] == Some(node.id)).collect();
        let above = (mine.len() > 1).then(|| come_together(&lanes, &mine, signs));
        mine.iter().for_each(|at| lanes[*at] = None);
        let at = mine.first().copied().unwrap_or_else(|| free(&mut lanes));
        let beside = row(lanes.len(), |lane| match lanes[lane] {
            _ if lane == at => (node.sign, ' '),
            Some(_) => (signs.line, ' '),
            None => (' ', ' '),
        });
        // A line whose parent is not listed ends here.
        lanes[at] = node.parent.filter(|parent| listed.contains(parent));
        while lanes.last().is_some_and(Option::is_none) {
            lanes.pop();
        }
        drawn.push(Drawn { above, beside });
    }
    let widest = drawn.iter().map(|drawn| drawn.beside.chars().count()).max().unwrap_or(0);
    for drawn in &mut drawn {
        let missing = widest - drawn.beside.chars().count();
        drawn.beside.push_str(&" ".repeat(missing));
    }
    drawn
}

/// Returns the first free lane.
fn free<T>(lanes: &mut Vec<Option<T>>) -> usize {
    lanes.iter().position(Option::is_none).unwrap_or_else(|| {
        lanes.push(None);
        lanes.len() - 1
    })
}

/// Row in which several lanes join the first of them.
fn come_together<T>(lanes: &[Option<T>], mine: &[usize], signs: Signs) -> String {
    let (first, last) = (mine.first().copied().unwrap_or(0), mine.last().copied().unwrap_or(0));
    let text = row(lanes.len(), |lane| {
        let between = if (first..last).contains(&lane) { signs.across } else { ' ' };
        let sign = match lane {
            lane if lane == first => signs.fork,
            lane if lane == last => signs.end,
            lane if mine.contains(&lane) => signs.joint,
            lane if lanes[lane].is_none() => between,
            lane if (first..last).contains(&lane) => signs.cross,
            _ => signs.line,
        };
        (sign, between)
    });
    text.trim_end().to_owned()
}

/// Returns a row with the symbol and separator of each lane.
fn row(lanes: usize, signs: impl Fn(usize) -> (char, char)) -> String {
    (0..lanes).flat_map(|lane| [signs(lane).0, signs(lane).1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(nodes: &[(u32, Option<u32>)], signs: Signs) -> String {
        let nodes: Vec<Node<u32>> =
            nodes.iter().map(|(id, parent)| Node { id: *id, parent: *parent, sign: 'o' }).collect();
        let mut text = String::new();
        for (drawn, node) in draw(&nodes, signs).iter().zip(&nodes) {
            text.extend(drawn.above.iter().flat_map(|above| [above.as_str(), "\n"]));
            text.push_str(&format!("{}{}\n", drawn.beside, node.id));
        }
        text
    }

    #[test]
    fn one_line_is_straight() {
        assert_eq!(picture(&[(3, Some(2)), (2, Some(1)), (1, None)], ASCII), "o 3\no 2\no 1\n");
        assert_eq!(picture(&[], ASCII), "");
    }

    #[test]
    fn lines_come_together_where_they_began() {
        let nodes = [(6, Some(2)), (5, Some(3)), (4, Some(1)), (3, Some(1)), (2, Some(1)), (1, None)];
        assert_eq!(picture(&nodes, UNICODE), "o     6\n│ o   5\n│ │ o 4\n│ o │ 3\no │ │ 2\n├─┴─╯\no     1\n");
    }

    #[test]
    fn a_line_that_stays_is_crossed() {
        let nodes = [(7, Some(4)), (6, Some(3)), (5, Some(4)), (4, Some(1)), (3, Some(1)), (1, None)];
        assert_eq!(
            picture(&nodes, UNICODE),
            "o     7\n│ o   6\n│ │ o 5\n├─┼─╯\no │   4\n│ o   3\n├─╯\no     1\n"
        );
        assert_eq!(
            picture(&nodes, ASCII),
            "o     7\n| o   6\n| | o 5\n|-+-'\no |   4\n| o   3\n|-'\no     1\n"
        );
    }

    #[test]
    fn a_line_whose_beginning_is_not_listed_ends_and_its_place_is_used_again() {
        assert_eq!(picture(&[(9, Some(8)), (7, Some(6)), (6, None)], ASCII), "o 9\no 7\no 6\n");
        let nodes = [(9, Some(1)), (8, Some(0)), (7, Some(1)), (1, None)];
        assert_eq!(picture(&nodes, ASCII), "o   9\n| o 8\n| o 7\n|-'\no   1\n");
    }
}
