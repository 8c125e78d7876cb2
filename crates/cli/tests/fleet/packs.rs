//! Forged packs: every hash is right, and the content is hostile. The clone ends with exit 13, in bounded memory and time,
//! and registers nothing.

use crate::forge::Forge;
use crate::world::World;
use safepoint_model::content::{Content, Form};
use safepoint_model::tree::{Entry, Meta, Node, Tree};
use safepoint_model::{ObjectId, ObjectKind};
use std::time::{Duration, Instant};

/// Address space of a command that must refuse.
const MEMORY_KILOBYTES: u64 = 1_500_000;
const TIME_MAX: Duration = Duration::from_secs(20);

fn entry(name: &[u8], node: Node) -> Entry {
    let mode = if matches!(node, Node::Directory(_)) { 0o755 } else { 0o644 };
    Entry { name: name.to_vec(), meta: Meta { mode, ..Meta::default() }, node }
}

fn link(name: &[u8]) -> Entry {
    entry(name, Node::Symlink(b"notes.txt".to_vec()))
}

/// Bytes of a tree with these entries as they are, without any check.
fn tree(entries: &[Entry]) -> Vec<u8> {
    let bodies = entries.iter().map(|entry| Tree::single(entry)[1..].to_vec());
    [vec![1], bodies.collect::<Vec<_>>().concat()].concat()
}

/// Forges, and clones: refused with exit 13, and nothing arrives.
#[track_caller]
fn refused(what: &str, forge: impl FnOnce(&mut Forge<'_>)) {
    let Some(mut world) = World::published() else { return };
    let mut forged = Forge::of(&world);
    forge(&mut forged);
    forged.publish(&forged.packed());
    refuses(&mut world, what);
}

#[track_caller]
fn refuses(world: &mut World, what: &str) {
    world.memory = Some(MEMORY_KILOBYTES);
    let began = Instant::now();
    let told = world.run("there", &["clone", "team", "project", "../clone"]);
    assert_eq!((told.code(), told.exit), ("remote_damaged", 13), "{what}: {:#}", told.answer);
    assert!(began.elapsed() < TIME_MAX, "{what}: {:?}", began.elapsed());
    world.assert_nothing_arrived(what);
}

#[test]
fn a_forged_pack_with_honest_content_is_cloned() {
    let Some(world) = World::published() else { return };
    let mut forge = Forge::of(&world);
    let at = forge.tree_with("main.rs");
    let mut entries = Tree::decode(&forge.objects[at].2).unwrap().into_entries();
    entries.retain(|entry| entry.name == b"main.rs");
    entries[0].meta.mode = 0o600;
    forge.set(at, Tree::new(entries).unwrap().encode());
    forge.publish(&forge.packed());
    world.run("there", &["clone", "team", "project", "../clone"]).assert_well();
}

#[test]
fn entries_with_names_that_leave_the_folder_are_refused() {
    for name in [&b".."[..], b".", b"", b"../escaped", b"a/b", b"/etc/escaped", b"a\0b", &[b'x'; 300]] {
        let what = String::from_utf8_lossy(name).into_owned();
        refused(&what, |forge| {
            let at = forge.tree_with("main.rs");
            forge.set(at, tree(&[link(name)]));
        });
    }
}

#[test]
fn entries_that_are_duplicate_or_not_sorted_are_refused() {
    for (what, entries) in [("twice", [link(b"a"), link(b"a")]), ("not sorted", [link(b"b"), link(b"a")])] {
        refused(what, |forge| {
            let at = forge.tree_with("main.rs");
            forge.set(at, tree(&entries));
        });
    }
    // A link out of the folder, and a folder of the same name behind it.
    refused("a folder behind a link", |forge| {
        let at = forge.tree_with("main.rs");
        let below = forge.objects[at].0;
        let root = forge.tree_with("notes.txt");
        let out = entry(b"src", Node::Symlink(b"../..".to_vec()));
        forge.set(root, tree(&[out, entry(b"src", Node::Directory(below))]));
    });
}

#[test]
fn files_whose_sizes_lie_are_refused() {
    for size in [0, 12, 14, 1 << 20, 1 << 50, u64::MAX] {
        for form in [Form::Whole, Form::Pieces, Form::Sparse] {
            refused(&format!("{size} {form:?}"), |forge| {
                let at = forge.tree_with("main.rs");
                let entries = Tree::decode(&forge.objects[at].2).unwrap().into_entries();
                let Node::File(content) = entries[0].node.clone() else { panic!("it is a file") };
                forge.set(at, tree(&[entry(b"main.rs", Node::File(Content { size, form, ..content }))]));
            });
        }
    }
}

#[test]
fn objects_of_another_kind_and_missing_ones_are_refused() {
    refused("a file that is a tree", |forge| {
        let at = forge.tree_with("main.rs");
        let id = forge.add(ObjectKind::Tree, vec![1]);
        let at = at + 1;
        let content = Content { size: 1, form: Form::Whole, id };
        forge.set(at, tree(&[entry(b"main.rs", Node::File(content))]));
    });
    refused("a missing folder", |forge| {
        let at = forge.tree_with("main.rs");
        forge.set(at, tree(&[entry(b"d", Node::Directory(ObjectId::from_bytes([7; 32])))]));
    });
}

#[test]
fn folders_that_multiply_are_refused() {
    // Each of 40 levels has the level below twice: a million million folders in four kilobytes.
    refused("2^40 folders", |forge| {
        let mut below = forge.add(ObjectKind::Tree, vec![1]);
        for _ in 0..40 {
            let twice = tree(&[entry(b"a", Node::Directory(below)), entry(b"b", Node::Directory(below))]);
            below = forge.add(ObjectKind::Tree, twice);
        }
        let at = forge.tree_with("main.rs");
        forge.set(at, tree(&[entry(b"main.rs", Node::Directory(below))]));
    });
}

#[test]
fn folders_that_are_too_deep_are_refused() {
    refused("50,000 folders in each other", |forge| {
        let mut below = forge.add(ObjectKind::Tree, vec![1]);
        for _ in 0..50_000 {
            let bytes = tree(&[entry(b"d", Node::Directory(below))]);
            below = ObjectId::of(ObjectKind::Tree, &bytes);
            forge.objects.push((below, ObjectKind::Tree, bytes));
        }
        let last = forge
            .objects
            .iter()
            .position(|(_, _, bytes)| bytes.windows(15).any(|it| it == b"safepoint.push\""));
        let document = forge.objects.remove(last.unwrap());
        forge.objects.push(document);
        let at = forge.tree_with("main.rs");
        forge.set(at, tree(&[entry(b"main.rs", Node::Directory(below))]));
    });
}

#[test]
fn a_record_of_another_workspace_is_refused() {
    let other = "01M7TGDJDZQCE0KAZKFKJ5Q1M1";
    refused("the record names another workspace", |forge| {
        let at = forge.record();
        let record = forge.json(at);
        let own = record["checkpoint"]["workspace_id"].as_str().unwrap().to_owned();
        let text = String::from_utf8(forge.objects[at].2.clone()).unwrap();
        forge.set(at, text.replace(&own, other).into_bytes());
    });
    refused("its files are those of another workspace", |forge| {
        let at = forge.document_with("{\"format\":1,\"parts\":");
        let own = forge.json(at)["parts"][0]["key"].as_str().unwrap().to_owned();
        let text = String::from_utf8(forge.objects[at].2.clone()).unwrap();
        forge.set(at, text.replace(&own, other).into_bytes());
    });
    refused("the record is that of another checkpoint", |forge| {
        let at = forge.record();
        let own = forge.json(at)["checkpoint"]["id"].as_str().unwrap().to_owned();
        let text = String::from_utf8(forge.objects[at].2.clone()).unwrap();
        forge.set(at, text.replace(&own, other).into_bytes());
    });
}

#[test]
fn a_plan_under_the_id_of_another_is_refused() {
    let plan = |world: &World| {
        world.write("plan.toml", "title = 'Limits'\nid = 'limits'\n[[step]]\nid = 'one'\nrun = 'true'\n");
        world.run("here", &["plan", "new", "plan.toml"]).assert_well();
        world.run("here", &["create", "-m", "with a plan"]).assert_well();
    };
    for everywhere in [false, true] {
        let Some(mut world) = World::published_after(plan) else { return };
        let mut forge = Forge::of(&world);
        let (old, new) = ("\"limits\"", "\"deploy\"");
        let manifest = forge.document_with("\"kind\":\"plan\"");
        assert!(forge.json(manifest)["parts"].is_array(), "it is the manifest");
        let text = String::from_utf8(forge.objects[manifest].2.clone()).unwrap();
        forge.set(manifest, text.replace(old, new).into_bytes());
        if everywhere {
            // The record describes the plan `deploy`; its state is that of another one.
            let at = forge.record();
            let text = String::from_utf8(forge.objects[at].2.clone()).unwrap();
            forge.set(at, text.replace(old, new).into_bytes());
        }
        forge.publish(&forge.packed());
        refuses(&mut world, &format!("everywhere: {everywhere}"));
    }
}

/// Sets numbers of the index of a pack, with all hashes of the segment right again.
fn with_index(packed: &[u8], change: impl FnOnce(&mut [u8], &mut [u8; 96])) -> Vec<u8> {
    const HEAD: usize = 96;
    let mut bytes = packed.to_vec();
    let end = bytes.len() - HEAD;
    let mut foot: [u8; HEAD] = bytes[end..].try_into().unwrap();
    let count = u32::from_le_bytes(foot[12..16].try_into().unwrap()) as usize;
    let from = end - count * 48;
    change(&mut bytes[from..end], &mut foot);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&foot[8..64]);
    hasher.update(&bytes[from..end]);
    foot[64..].copy_from_slice(hasher.finalize().as_bytes());
    bytes[end..].copy_from_slice(&foot);
    bytes[16 + 8..16 + HEAD].copy_from_slice(&foot[8..]);
    bytes
}

#[track_caller]
fn refused_index(what: &str, change: impl FnOnce(&mut [u8], &mut [u8; 96])) {
    let Some(mut world) = World::published() else { return };
    let forge = Forge::of(&world);
    forge.publish(&with_index(&forge.packed(), change));
    refuses(&mut world, what);
}

#[test]
fn an_index_whose_numbers_lie_is_refused() {
    let number =
        |index: &mut [u8], at: usize, value: u32| index[at..at + 4].copy_from_slice(&value.to_le_bytes());
    for value in [0, 1, u32::MAX, 256 << 20] {
        refused_index(&format!("offset {value}"), |index, _| number(index, 48 + 4, value.wrapping_add(3)));
        refused_index(&format!("stored {value}"), |index, _| number(index, 8, value));
        refused_index(&format!("raw {value}"), |index, _| number(index, 12, value));
    }
    refused_index("an unknown kind", |index, _| index[0] = 99);
    refused_index("an unknown codec", |index, _| index[1] = 99);
    for count in [0u32, 1, 65_536, 65_537, u32::MAX] {
        refused_index(&format!("{count} objects"), |_, foot| {
            foot[12..16].copy_from_slice(&count.to_le_bytes());
            foot[24..32].copy_from_slice(&(u64::from(count) * 48).to_le_bytes());
        });
    }
    for payload in [0, u64::MAX, 1 << 40, u64::MAX - 191] {
        refused_index(&format!("{payload} bytes of frames"), |_, foot| {
            foot[16..24].copy_from_slice(&payload.to_le_bytes());
        });
    }
}

#[test]
fn objects_that_expand_a_thousand_times_stay_in_bounded_memory() {
    // Files of 60 MB of zeros in one chunk each, in a pack of some kilobytes.
    refused("large chunks", |forge| {
        let entries: Vec<Entry> = (0..12u8)
            .map(|n| {
                let mut bytes = vec![0; 60 << 20];
                bytes[0] = n;
                let size = bytes.len() as u64;
                let id = forge.add(ObjectKind::Chunk, bytes);
                entry(
                    format!("f{n}").as_bytes(),
                    Node::File(Content { size: size + 1, form: Form::Whole, id }),
                )
            })
            .collect();
        let at = forge.tree_with("main.rs");
        forge.set(at, tree(&entries));
    });
    // A tree and a record that expand to 200 MB.
    refused("a large tree", |forge| {
        let at = forge.tree_with("main.rs");
        forge.set(at, vec![0; 200 << 20]);
    });
    refused("a large record", |forge| {
        let at = forge.record();
        forge.set(at, vec![b'['; 200 << 20]);
    });
}
