//! Hand-made repositories, so that they can be hostile.

use crate::*;
use safepoint_model::content::{Content, Form, Piece, encode_pieces};
use safepoint_model::progress::Silent;
use safepoint_model::tree::{Entry, Meta, Node, Tree};
use safepoint_model::{ObjectError, ObjectId, ObjectKind, ObjectSource, RelPath};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

/// Captured objects in memory.
#[derive(Default)]
struct Captured(HashMap<ObjectId, Vec<u8>>);

impl ObjectSource for Captured {
    fn get(&self, _: ObjectKind, id: ObjectId) -> Result<Vec<u8>, ObjectError> {
        self.0.get(&id).cloned().ok_or(ObjectError::Missing { id })
    }
}

impl Captured {
    fn put(&mut self, kind: ObjectKind, bytes: &[u8]) -> ObjectId {
        let id = ObjectId::of(kind, bytes);
        self.0.insert(id, bytes.to_vec());
        id
    }

    fn file(&mut self, name: &[u8], mode: u16, bytes: &[u8]) -> Entry {
        self.put(ObjectKind::Chunk, bytes);
        let meta = Meta { mode, ..Meta::default() };
        Entry { name: name.to_vec(), meta, node: Node::File(Content::whole(bytes)) }
    }

    fn folder(&mut self, name: &[u8], entries: Vec<Entry>) -> Entry {
        let tree = Tree::new(entries).unwrap().encode();
        let id = self.put(ObjectKind::Tree, &tree);
        Entry {
            name: name.to_vec(),
            meta: Meta { mode: 0o755, ..Meta::default() },
            node: Node::Directory(id),
        }
    }

    fn root(&mut self, entries: Vec<Entry>) -> ObjectId {
        match self.folder(b"root", entries).node {
            Node::Directory(tree) => tree,
            _ => unreachable!(),
        }
    }
}

fn link(name: &[u8], target: &[u8]) -> Entry {
    Entry { name: name.to_vec(), meta: Meta::default(), node: Node::Symlink(target.to_vec()) }
}

fn init(top: &Path) {
    init_at(&top.join(".git"), "[core]\n\trepositoryformatversion = 0\n\tbare = false\n");
}

fn init_at(git: &Path, config: &str) {
    for folder in ["objects/info", "objects/pack", "refs/heads", "refs/tags"] {
        fs::create_dir_all(git.join(folder)).unwrap();
    }
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(git.join("config"), config).unwrap();
}

fn repository() -> (TempDir, Repository) {
    let top = tempfile::tempdir().unwrap();
    init(top.path());
    let repository = Repository::around(top.path()).unwrap().unwrap();
    (top, repository)
}

fn commit(repository: &Repository, source: &Captured, tree: ObjectId, message: &str) -> Committed {
    let wanted = Wanted { source, tree, message, seconds: 1_700_000_000, unchanged: Unchanged::Committed };
    repository.commit(&wanted, &Silent).unwrap()
}

/// Commits one file, and moves branch and index to the commit.
fn committed(repository: &Repository, text: &[u8]) -> GitId {
    let mut source = Captured::default();
    let entry = source.file(b"a", 0o644, text);
    let tree = source.root(vec![entry]);
    let made = commit(repository, &source, tree, "one").commit;
    repository.carry_out(&repository.plan_reset(made).unwrap(), "commit", 1).unwrap();
    made
}

/// Lists a commit: path, mode in octal, id.
fn listing(repository: &Repository, commit: GitId) -> Vec<(String, String, String)> {
    fn walk(
        objects: &objects::Objects<'_>,
        tree: &gix_hash::ObjectId,
        above: &str,
        all: &mut Vec<(String, String, String)>,
    ) {
        for entry in objects.entries(tree).unwrap() {
            let path = format!("{above}{}", entry.filename);
            if entry.mode.is_tree() {
                walk(objects, &entry.oid, &format!("{path}/"), all);
            } else {
                all.push((path, format!("{:o}", entry.mode), entry.oid.to_string()));
            }
        }
    }
    let objects = objects::Objects::open(repository).unwrap();
    let mut all = Vec::new();
    walk(&objects, &objects.tree_of(commit).unwrap(), "", &mut all);
    all
}

fn paths(repository: &Repository, commit: GitId) -> Vec<String> {
    listing(repository, commit).into_iter().map(|(path, ..)| path).collect()
}

#[test]
fn the_repository_of_a_folder_is_found_and_its_sort_is_checked() {
    let top = tempfile::tempdir().unwrap();
    assert!(Repository::around(top.path()).unwrap().is_none());
    fs::create_dir_all(top.path().join("a/.git")).unwrap();
    assert!(
        Repository::around(&top.path().join("a")).unwrap().is_none(),
        "an empty .git is not a repository"
    );
    init(top.path());
    let below = Repository::around(&top.path().join("a")).unwrap().unwrap();
    assert_eq!((below.prefix().to_string(), below.object_format()), ("a".to_owned(), "sha1"));
    assert_eq!(below.top(), top.path().canonicalize().unwrap());
    for (config, expected) in [
        ("[core]\nbare = true", "bare"),
        ("[core]\nrepositoryformatversion = 2", "version is 2"),
        ("[core]\nrepositoryformatversion = 1\n[extensions]\nrefStorage = reftable", "reftable"),
        ("[core]\nrepositoryformatversion = 1\n[extensions]\nobjectFormat = md5", "object format is md5"),
        ("[core]\nrepositoryformatversion = 1\n[extensions]\nmagic = true", "extension magic"),
        ("[core\n", "damaged"),
    ] {
        fs::write(top.path().join(".git/config"), config).unwrap();
        let error = Repository::around(top.path()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let bare = tempfile::tempdir().unwrap();
    init_at(bare.path(), "[core]\nbare = true\n");
    assert!(matches!(Repository::around(bare.path()), Err(GitError::Bare { .. })));
}

#[test]
fn a_git_file_is_followed_only_where_the_other_end_leads_back() {
    let top = tempfile::tempdir().unwrap();
    let (main, other) = (top.path().join("main"), top.path().join("other"));
    for folder in [&main, &other] {
        fs::create_dir(folder).unwrap();
    }
    init(&main);
    fs::write(other.join(".git"), format!("gitdir: {}\n", main.join(".git").display())).unwrap();
    assert!(matches!(Repository::around(&other), Err(GitError::Stranger { .. })));
    let own = main.join(".git/worktrees/other");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("HEAD"), "ref: refs/heads/side\n").unwrap();
    fs::write(own.join("commondir"), "../..\n").unwrap();
    fs::write(own.join("gitdir"), format!("{}\n", main.join(".git").display())).unwrap();
    fs::write(other.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
    assert!(matches!(Repository::around(&other), Err(GitError::Stranger { .. })));
    fs::write(own.join("gitdir"), format!("{}\n", other.join(".git").display())).unwrap();
    let worktree = Repository::around(&other).unwrap().unwrap();
    assert_eq!(worktree.head().unwrap().branch().unwrap().to_string(), "refs/heads/side");
    fs::remove_file(other.join(".git")).unwrap();
    symlink(main.join(".git"), other.join(".git")).unwrap();
    assert!(matches!(Repository::around(&other), Err(GitError::Stranger { .. })));
    fs::remove_file(other.join(".git")).unwrap();
    fs::write(other.join(".git"), "nonsense").unwrap();
    assert!(matches!(Repository::around(&other), Err(GitError::Damaged { .. })));
}

#[test]
fn a_captured_tree_becomes_a_commit_and_nothing_else_moves() {
    let (top, repository) = repository();
    let mut source = Captured::default();
    let large: Vec<u8> = (0..700_000u32).flat_map(u32::to_le_bytes).collect();
    let pieces: Vec<Piece> = large
        .chunks(1024 * 1024)
        .map(|piece| Piece { size: piece.len() as u64, id: source.put(ObjectKind::Chunk, piece) })
        .collect();
    let list = source.put(ObjectKind::Pieces, &encode_pieces(&pieces));
    let content = Content { size: large.len() as u64, form: Form::Pieces, id: list };
    let odd = source.file(b"odd \xff\n name", 0o600, b"odd");
    let inner = source.file(b"tool", 0o755, b"#!/bin/sh\n");
    let skipped = source.file(b"x.log", 0o644, b"noise");
    let empty = source.folder(b"empty", vec![]);
    let rules = source.file(b".gitignore", 0o644, b"*.log\n");
    let forbidden = source.file(b".GIT", 0o644, b"no");
    let pointer = source.file(b".git", 0o644, b"gitdir: x");
    // Git sorts a folder as if its name ended with a slash.
    let folder = source.folder(b"a", vec![inner, skipped, empty]);
    let dotted = source.file(b"a.txt", 0o644, b"");
    let big = Entry { name: b"big".to_vec(), meta: Meta::default(), node: Node::File(content) };
    let entries = vec![odd, folder, dotted, rules, forbidden, pointer, big, link(b"link", b"../away")];
    let tree = source.root(entries);
    let made = commit(&repository, &source, tree, "first\n\nwith a body\n");
    assert_eq!(made.refused, [RelPath::new(".GIT").unwrap()]);
    assert_eq!(made.ignored, 1);
    let found = listing(&repository, made.commit);
    let modes: Vec<(&str, &str)> =
        found.iter().map(|(path, mode, _)| (path.as_str(), mode.as_str())).collect();
    assert_eq!(
        modes,
        [
            (".gitignore", "100644"),
            ("a.txt", "100644"),
            ("a/tool", "100755"),
            ("big", "100644"),
            ("link", "120000"),
            ("odd \u{fffd}\n name", "100644"),
        ]
    );
    let blob = gix_object::compute_hash(gix_hash::Kind::Sha1, gix_object::Kind::Blob, &large).unwrap();
    assert_eq!(found[3].2, blob.to_string());
    assert_eq!(repository.head().unwrap(), Head::Unborn { name: RelPath::new("refs/heads/main").unwrap() });
    assert!(repository.refs().unwrap().is_empty() && repository.index_bytes().unwrap().is_none());
    let again = commit(&repository, &source, tree, "first\n\nwith a body\n");
    assert_eq!(again.commit, made.commit, "an equal tree gives an equal commit");
    let left = fs::read_dir(top.path().join(".git/objects")).unwrap();
    assert!(left.flatten().all(|entry| !entry.file_name().to_string_lossy().starts_with("tmp_obj")));
}

#[test]
fn what_is_tracked_is_kept_also_where_it_is_ignored() {
    let (_top, repository) = repository();
    let mut source = Captured::default();
    let kept = source.file(b"kept.log", 0o644, b"1");
    let folder = source.folder(b"out", vec![kept.clone()]);
    let tree = source.root(vec![kept.clone(), folder.clone()]);
    let first = commit(&repository, &source, tree, "one").commit;
    repository.carry_out(&repository.plan_reset(first).unwrap(), "commit", 1).unwrap();
    let rules = source.file(b".gitignore", 0o644, b"*.log\n/out/\n/new/\n");
    let other = source.file(b"other.log", 0o644, b"2");
    let new = source.folder(b"new", vec![other.clone()]);
    let out = source.folder(b"out", vec![kept.clone(), other.clone()]);
    let tree = source.root(vec![kept, rules, other, new, out]);
    let second = commit(&repository, &source, tree, "two");
    assert_eq!(paths(&repository, second.commit), [".gitignore", "kept.log", "out/kept.log"]);
    assert_eq!(second.ignored, 3);
}

#[test]
fn a_part_of_a_repository_replaces_that_part_alone() {
    let (top, repository) = repository();
    let mut source = Captured::default();
    let (a, b) = (source.file(b"a", 0o644, b"a"), source.file(b"b", 0o644, b"b"));
    let inner = source.folder(b"inner", vec![a.clone(), b.clone()]);
    let deep = source.folder(b"deep", vec![inner]);
    let tree = source.root(vec![a.clone(), deep]);
    let first = commit(&repository, &source, tree, "one").commit;
    repository.carry_out(&repository.plan_reset(first).unwrap(), "commit", 1).unwrap();
    fs::create_dir_all(top.path().join("deep/inner")).unwrap();
    let part = Repository::around(&top.path().join("deep/inner")).unwrap().unwrap();
    let tree = source.root(vec![b]);
    let second = commit(&part, &source, tree, "two").commit;
    assert_eq!(paths(&part, second), ["a", "deep/inner/b"]);
    let nothing = source.root(vec![]);
    assert_eq!(paths(&part, commit(&part, &source, nothing, "none").commit), ["a"]);
    let nothing = commit(&repository, &source, nothing, "none at all").commit;
    assert!(paths(&repository, nothing).is_empty());
}

#[test]
fn who_commits_is_one_line_that_cannot_say_more() {
    let (top, repository) = repository();
    assert_eq!(repository.identity, "Safepoint <safepoint@localhost>");
    let config = "[user]\n\tname = \"A <b>\\n c\"\n\temail = a@b.c\n[core]\n\tfileMode = false\n";
    fs::write(top.path().join(".git/config"), config).unwrap();
    let repository = Repository::around(top.path()).unwrap().unwrap();
    assert_eq!((repository.identity.as_str(), repository.file_mode), ("A b c <a@b.c>", false));
}

#[test]
fn a_repository_with_long_names_works_as_one_with_short_ones() {
    let top = tempfile::tempdir().unwrap();
    let config = "[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\n";
    init_at(&top.path().join(".git"), config);
    let repository = Repository::around(top.path()).unwrap().unwrap();
    let made = committed(&repository, b"text");
    assert_eq!((repository.object_format(), made.to_string().len()), ("sha256", 64));
    assert_eq!(repository.head().unwrap().commit(), Some(made));
    fs::write(top.path().join("a"), "text").unwrap();
    assert!(repository.changes(&Silent).unwrap().is_empty());
    fs::write(top.path().join(".git/refs/heads/main"), format!("{}\n", "ab".repeat(20))).unwrap();
    assert!(matches!(repository.head(), Err(GitError::Damaged { .. })), "a short name is invalid");
}

#[test]
fn a_tag_is_made_once_and_taken_away_where_it_still_names_the_commit() {
    let (top, repository) = repository();
    let one = committed(&repository, b"1");
    let two = committed(&repository, b"2");
    repository.tag("checkpoint-X", one).unwrap();
    repository.tag("checkpoint-X", one).unwrap();
    assert!(matches!(repository.tag("checkpoint-X", two), Err(GitError::TagTaken { .. })));
    assert!(matches!(repository.remove_tag("checkpoint-X", two), Err(GitError::TagTaken { .. })));
    assert!(repository.remove_tag("checkpoint-X", one).unwrap());
    assert!(!repository.remove_tag("checkpoint-X", one).unwrap());
    for odd in ["../heads/main", "", "-x", "a/b", "a b"] {
        assert!(repository.tag(odd, one).is_err(), "{odd}");
    }
    let packed = format!(
        "# pack-refs with: peeled fully-peeled sorted \n{two} refs/heads/side\n{one} refs/tags/checkpoint-Y\n^{two}\n{two} refs/tags/z\n"
    );
    fs::write(top.path().join(".git/packed-refs"), packed).unwrap();
    assert_eq!(repository.refs().unwrap().len(), 4);
    assert!(repository.remove_tag("checkpoint-Y", one).unwrap());
    let left = fs::read_to_string(top.path().join(".git/packed-refs")).unwrap();
    assert_eq!(
        left.lines().skip(1).collect::<Vec<_>>(),
        [format!("{two} refs/heads/side"), format!("{two} refs/tags/z")]
    );
}

#[test]
fn a_link_in_a_repository_leads_no_write_out_of_it() {
    let (top, repository) = repository();
    let one = committed(&repository, b"1");
    let git = top.path().join(".git");
    let outside = tempfile::tempdir().unwrap();
    fs::remove_dir(git.join("refs/tags")).unwrap();
    symlink(outside.path(), git.join("refs/tags")).unwrap();
    assert!(repository.tag("checkpoint-X", one).is_err());
    for digits in 0..=255u8 {
        let folder = git.join(format!("objects/{digits:02x}"));
        if !folder.exists() {
            symlink(outside.path(), folder).unwrap();
        }
    }
    let mut source = Captured::default();
    let entries = (0..20).map(|at| source.file(format!("f{at}").as_bytes(), 0o644, &[at])).collect();
    let tree = source.root(entries);
    let wanted = Wanted { source: &source, tree, message: "x", seconds: 1, unchanged: Unchanged::Committed };
    assert!(repository.commit(&wanted, &Silent).is_err());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    fs::rename(git.join("index"), outside.path().join("index")).unwrap();
    symlink(outside.path().join("index"), git.join("index")).unwrap();
    assert!(repository.index_bytes().is_err());
}

#[test]
fn a_move_is_carried_out_and_taken_back() {
    let (top, repository) = repository();
    let git = top.path().join(".git");
    let one = committed(&repository, b"1");
    let before = repository.index_bytes().unwrap();
    fs::create_dir_all(git.join("logs/refs/heads")).unwrap();
    fs::write(git.join("logs/HEAD"), "").unwrap();
    let two = {
        let mut source = Captured::default();
        let entry = source.file(b"a", 0o644, b"2");
        let tree = source.root(vec![entry]);
        commit(&repository, &source, tree, "two").commit
    };
    let there = repository.plan_reset(two).unwrap();
    fs::write(git.join("index.lock"), "").unwrap();
    assert!(matches!(repository.carry_out(&there, "x", 2), Err(GitError::Locked { .. })));
    fs::remove_file(git.join("index.lock")).unwrap();
    // A lock of our own crash is recognised by its content; that of another git process stays.
    fs::write(git.join("index.lock"), there.index.1.as_ref().unwrap()).unwrap();
    fs::write(git.join("refs/heads/main.lock"), format!("{two}\n")).unwrap();
    fs::write(git.join("HEAD.lock"), "").unwrap();
    assert!(repository.take_back(&there).unwrap().is_empty());
    assert!(!git.join("index.lock").exists() && !git.join("refs/heads/main.lock").exists());
    assert!(git.join("HEAD.lock").exists());
    fs::remove_file(git.join("HEAD.lock")).unwrap();
    repository.carry_out(&there, "safepoint:\nreset", 2).unwrap();
    assert_eq!(repository.head().unwrap().commit(), Some(two));
    let log = fs::read_to_string(git.join("logs/HEAD")).unwrap();
    assert_eq!(log, format!("{one} {two} Safepoint <safepoint@localhost> 2 +0000\tsafepoint: reset\n"));
    assert!(matches!(repository.carry_out(&there, "x", 2), Err(GitError::Moved { .. })));
    assert!(repository.take_back(&there).unwrap().is_empty());
    assert_eq!((repository.head().unwrap().commit(), repository.index_bytes().unwrap()), (Some(one), before));
    assert!(repository.take_back(&there).unwrap().is_empty(), "a second undo changes nothing");
    let three = committed(&repository, b"3");
    assert_eq!(repository.take_back(&there).unwrap(), ["main", "the index"], "another program moved them");
    assert_eq!(repository.head().unwrap().commit(), Some(three));
    fs::write(git.join("MERGE_HEAD"), format!("{one}\n")).unwrap();
    assert!(matches!(repository.plan_reset(one), Err(GitError::UnderWay { operation: Operation::Merge })));
}

#[test]
fn head_goes_back_to_the_branch_it_was_on_and_to_before_the_first_commit() {
    let (top, repository) = repository();
    let unborn = repository.head().unwrap();
    let one = committed(&repository, b"1");
    let on_main = repository.head().unwrap();
    let index = repository.index_bytes().unwrap();
    fs::write(top.path().join(".git/HEAD"), format!("{one}\n")).unwrap();
    assert_eq!(repository.head().unwrap(), Head::Detached { commit: one });
    let two = committed(&repository, b"2");
    assert_eq!(repository.head().unwrap(), Head::Detached { commit: two });
    let back = repository.plan_return(&on_main, index).unwrap();
    repository.carry_out(&back, "back", 3).unwrap();
    assert_eq!(repository.head().unwrap(), on_main);
    let again = repository.plan_undo(&back).unwrap().unwrap();
    assert_eq!(again.commits, (Some(one), Some(two)));
    repository.carry_out(&again, "again", 3).unwrap();
    assert_eq!(repository.head().unwrap(), Head::Detached { commit: two });
    assert!(repository.plan_undo(&back).unwrap().is_none(), "it is already undone");
    repository.carry_out(&back, "back", 3).unwrap();
    let back = repository.plan_return(&unborn, None).unwrap();
    repository.carry_out(&back, "back", 3).unwrap();
    assert_eq!((repository.head().unwrap(), repository.index_bytes().unwrap()), (unborn, None));
    let gone = Head::Detached { commit: "ab".repeat(20).parse().unwrap() };
    assert!(matches!(repository.plan_return(&gone, None), Err(GitError::NoCommit { .. })));
}

#[test]
fn what_is_not_committed_is_found() {
    let (top, repository) = repository();
    let write = |name: &str, text: &str| {
        let path = top.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("a", "1");
    write(".safepoint/stage", "ours");
    committed(&repository, b"1");
    let changes = || repository.changes(&Silent).unwrap();
    assert_eq!(changes(), Changes::default());
    write("a", "2");
    assert_eq!((changes().modified, changes().examples), (1, vec![RelPath::new("a").unwrap()]));
    fs::remove_file(top.path().join("a")).unwrap();
    assert_eq!(changes().modified, 1, "a deleted file");
    write("a", "1");
    write("new/file", "x");
    write("x.log", "x");
    write(".git/info/exclude", "*.log\n");
    assert_eq!((changes().untracked, changes().modified), (1, 0));
    write(".gitignore", "/new\n.gitignore\n");
    assert!(changes().is_empty());
    let mut source = Captured::default();
    let entry = source.file(b"b", 0o644, b"1");
    let tree = source.root(vec![entry]);
    let other = commit(&repository, &source, tree, "other").commit;
    fs::write(top.path().join(".git/refs/heads/main"), format!("{other}\n")).unwrap();
    assert_eq!(changes().staged, 2, "one added and one removed against HEAD");
}

#[test]
fn a_damaged_index_is_an_error_and_never_more() {
    let (top, repository) = repository();
    committed(&repository, b"1");
    let path = top.path().join(".git/index");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        fs::write(&path, &whole[..at]).unwrap();
        let _ = repository.changes(&Silent);
        let mut flipped = whole.clone();
        flipped[at] ^= 0xff;
        fs::write(&path, flipped).unwrap();
        assert!(repository.changes(&Silent).is_err(), "byte {at}");
    }
}

#[test]
fn what_is_under_way_is_told() {
    let (top, repository) = repository();
    let git = top.path().join(".git");
    assert_eq!(repository.operation().unwrap(), None);
    for (trace, operation) in [
        ("BISECT_LOG", "bisect"),
        ("REVERT_HEAD", "revert"),
        ("CHERRY_PICK_HEAD", "cherry-pick"),
        ("MERGE_HEAD", "merge"),
    ] {
        fs::write(git.join(trace), "").unwrap();
        assert_eq!(repository.operation().unwrap().unwrap().to_string(), operation);
    }
    fs::create_dir(git.join("rebase-apply")).unwrap();
    assert_eq!(repository.operation().unwrap(), Some(Operation::Rebase));
    fs::write(git.join("rebase-apply/applying"), "").unwrap();
    assert_eq!(repository.operation().unwrap(), Some(Operation::ApplyMailbox));
}
