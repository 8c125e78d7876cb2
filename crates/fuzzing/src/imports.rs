//! Imports: a folder of arbitrary files, read as the layout of a checkpoint.

use crate::packs::folder;
use safepoint::model::CheckpointId;
use safepoint::{CheckpointManager, Depth, Filter, ImportOptions, RoleFilter, Silent, Workspace};
use serde_json::Value;
use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path};

/// Separator between two files of the folder.
const BETWEEN: &[u8] = b"\n==\n";
/// Number of imports into one home.
const IMPORTS_MAX: u32 = 200;

struct Home {
    folder: tempfile::TempDir,
    manager: CheckpointManager,
    workspace: Workspace,
    imports: u32,
}

impl Home {
    fn new() -> Self {
        let folder = folder();
        fs::create_dir(folder.path().join("project")).expect("a folder");
        let manager = CheckpointManager::open(&folder.path().join("home")).expect("a home");
        let workspace = manager.workspaces().register(&folder.path().join("project")).expect("a workspace");
        Self { folder, manager, workspace, imports: 0 }
    }

    fn listed(&self) -> Vec<CheckpointId> {
        let filter = Filter { role: RoleFilter::Any, ..Filter::default() };
        self.manager.checkpoints().list(&filter).expect("a list").iter().map(|it| it.id).collect()
    }
}

thread_local! {
    static HOME: RefCell<Option<Home>> = const { RefCell::new(None) };
}

/// Checks that a folder becomes a valid checkpoint, or an error and no checkpoint. Nothing outside the home
/// is written.
///
/// The bytes are files separated by `==` lines: first the path (`@path` for a link), then the content. Hashes
/// in `metadata.json` are corrected, because no fuzzer guesses them; a hash that begins with `!` is left
/// unchanged.
pub fn imports(bytes: &[u8]) {
    import(bytes);
}

/// Does the same; returns true if the import made a checkpoint.
pub fn import(bytes: &[u8]) -> bool {
    HOME.with_borrow_mut(|home| {
        if home.as_ref().is_none_or(|home| home.imports >= IMPORTS_MAX) {
            *home = Some(Home::new());
        }
        let home = home.as_mut().expect("the home exists");
        home.imports += 1;
        let layout = home.folder.path().join("layout");
        let _ = fs::remove_dir_all(&layout);
        fs::create_dir(&layout).expect("a folder");
        lay_out(&layout, bytes);
        let _ = safepoint::check_layout(&layout);
        let before = home.listed();
        let imported = home.manager.import(&home.workspace, &layout, &ImportOptions::default(), &Silent);
        let is_imported = imported.is_ok();
        match imported {
            Ok(imported) => {
                let valid = home.manager.upkeep().validate(Some(&imported.checkpoint), Depth::Deep, &Silent);
                assert!(valid.expect("it validates").is_valid());
                let deleted = home.manager.checkpoints().delete(&[imported.checkpoint.id]);
                assert!(deleted.is_ok(), "{deleted:?}");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        assert_eq!(home.listed(), before);
        let left = fs::read_dir(home.folder.path().join("project")).expect("the project").count();
        assert_eq!(left, 0, "an import does not touch the files of the workspace");
        is_imported
    })
}

fn lay_out(layout: &Path, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = rest.windows(BETWEEN.len()).position(|it| it == BETWEEN);
        let (file, after) =
            end.map_or((rest, &rest[rest.len()..]), |at| (&rest[..at], &rest[at + BETWEEN.len()..]));
        rest = after;
        let (name, content) =
            file.split_at(file.iter().position(|byte| *byte == b'\n').unwrap_or(file.len()));
        let content = content.strip_prefix(b"\n").unwrap_or_default();
        let Ok(name) = std::str::from_utf8(name) else { continue };
        let (is_link, name) = name.strip_prefix('@').map_or((false, name), |name| (true, name));
        let path = Path::new(name);
        // Only paths inside the folder: the harness must not write elsewhere, and it follows links.
        let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
        if name.is_empty() || name.contains('\0') || !inside || crosses_link(layout, path) {
            continue;
        }
        let here = layout.join(path);
        if here.parent().is_none_or(|above| fs::create_dir_all(above).is_err()) {
            continue;
        }
        // Names that are too long or exist already are skipped.
        let _ = match is_link {
            true => symlink(String::from_utf8_lossy(content).replace('\0', ""), &here),
            false if name.ends_with('/') => fs::create_dir(&here),
            false => fs::write(&here, content),
        };
    }
    fit_hashes(layout);
}

fn crosses_link(layout: &Path, path: &Path) -> bool {
    path.ancestors().any(|part| {
        layout.join(part).symlink_metadata().is_ok_and(|it| it.is_symlink()) && part != Path::new("")
    })
}

/// Sets sizes and hashes in the metadata to those of the files.
fn fit_hashes(layout: &Path) {
    let metadata = layout.join("metadata.json");
    let is_file = |path: &Path| path.symlink_metadata().is_ok_and(|it| it.is_file());
    if !is_file(&metadata) {
        return;
    }
    let Ok(mut value) = serde_json::from_slice::<Value>(&fs::read(&metadata).unwrap_or_default()) else {
        return;
    };
    let Some(rows) = value.get_mut("hashes").and_then(Value::as_array_mut) else { return };
    for row in rows {
        let Some(path) = row.get("path").and_then(Value::as_str).map(|path| layout.join(path)) else {
            continue;
        };
        let stays = row.get("blake3").and_then(Value::as_str).is_some_and(|it| it.starts_with('!'));
        if stays || !path.starts_with(layout) || !is_file(&path) {
            continue;
        }
        let bytes = fs::read(&path).unwrap_or_default();
        row["size"] = bytes.len().into();
        row["blake3"] = blake3::hash(&bytes).to_hex().to_string().into();
    }
    let _ = fs::write(&metadata, value.to_string());
}

/// Encodes a folder as input bytes, for seeds of the corpus.
pub fn bytes_of_layout(layout: &Path) -> Vec<u8> {
    fn walk(layout: &Path, folder: &Path, all: &mut Vec<Vec<u8>>) {
        let mut entries: Vec<_> =
            fs::read_dir(folder).expect("a folder").flatten().map(|it| it.path()).collect();
        entries.sort();
        for path in entries {
            let name = path.strip_prefix(layout).expect("inside").to_str().expect("text").to_owned();
            let is_link = path.is_symlink();
            match path.is_dir() && !is_link {
                true => {
                    all.push(format!("{name}/").into_bytes());
                    walk(layout, &path, all);
                }
                false if is_link => {
                    let target = fs::read_link(&path).expect("a link");
                    all.push(format!("@{name}\n{}", target.display()).into_bytes());
                }
                false => {
                    all.push([format!("{name}\n").as_bytes(), &fs::read(&path).expect("a file")].concat());
                }
            }
        }
    }
    let mut all = Vec::new();
    walk(layout, layout, &mut all);
    all.join(BETWEEN)
}
