//! Writes the seeds of the fuzzers, real values of every shape, into a folder such as `fuzz/corpus`.
//!
//! `cargo run -p safepoint-fuzzing --example seeds -- fuzz/corpus`

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a program that writes test data")]

use safepoint::model::plan::spec::{PlanSpec, StepSpec};
use safepoint::{CheckpointManager, CreateOptions, NewDecision, NewSession, Silent};
use safepoint_agents::CodingAgent;
use safepoint_model::content::{Content, Form, Piece, Stretch, encode_pieces, encode_sparse};
use safepoint_model::tree::{Entry, Meta, Node, Tree};
use safepoint_model::{ObjectId, ObjectKind, ObjectSink, document};
use safepoint_store::Store;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

struct Corpus(PathBuf);

impl Corpus {
    fn add(&self, target: &str, name: &str, bytes: impl AsRef<[u8]>) {
        let folder = self.0.join(target);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("seed-{name}")), bytes).unwrap();
    }
}

fn main() {
    let corpus = Corpus(PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "fuzz/corpus".to_owned())));
    trees_and_objects(&corpus);
    packs(&corpus);
    checkpoints(&corpus);
    texts(&corpus);
    hooks(&corpus);
}

fn entry(name: &str, node: Node) -> Entry {
    let meta = Meta { mode: 0o644, uid: 1000, gid: 100, mtime_ns: 0, ..Meta::default() };
    Entry { name: name.into(), meta, node }
}

fn trees_and_objects(corpus: &Corpus) {
    let id = ObjectId::of(ObjectKind::Pieces, b"p");
    let mut marked = entry("marked", Node::File(Content::whole(b"x")));
    marked.meta.xattrs = vec![(b"user.a".to_vec(), b"1".to_vec()), (b"user.b".to_vec(), vec![0, 255])];
    marked.meta.mtime_ns = -5;
    let all = vec![
        marked,
        entry("large", Node::File(Content { size: 1 << 40, form: Form::Pieces, id })),
        entry("dir", Node::Directory(id)),
        entry("link", Node::Symlink(b"../outside".to_vec())),
    ];
    corpus.add("trees", "empty", Tree::default().encode());
    corpus.add("trees", "all", Tree::new(all.clone()).unwrap().encode());
    for one in all {
        corpus.add("trees", &format!("only-{}", String::from_utf8_lossy(&one.name)), Tree::single(&one));
    }
    // Version 2: an ACL (version, then tag, rights and id of each entry), a capability, holes.
    let access =
        [(1u16, 6u16, u32::MAX), (2, 7, 1000), (4, 4, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let entries = access.iter().flat_map(|(tag, rights, id)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    });
    let acl: Vec<u8> = 2u32.to_le_bytes().into_iter().chain(entries).collect();
    let mut shared = entry("shared", Node::File(Content::whole(b"x")));
    (shared.meta.mode, shared.meta.xattrs) =
        (0o670, vec![(b"system.posix_acl_access".to_vec(), acl.clone())]);
    let mut folder = entry("folder", Node::Directory(id));
    folder.meta.xattrs = vec![(b"system.posix_acl_default".to_vec(), acl), (b"user.a".to_vec(), vec![])];
    let mut program = entry("program", Node::File(Content::whole(b"x")));
    let capability = [&[1, 0, 0, 2][..], &[0; 16]].concat();
    program.meta.xattrs = vec![(b"security.capability".to_vec(), capability)];
    let sparse = entry("sparse", Node::File(Content { size: 15 << 40, form: Form::Sparse, id }));
    for one in [&shared, &folder, &program, &sparse] {
        let bytes = Tree::single(one);
        assert!(Tree::decode(&bytes).is_ok());
        corpus.add("trees", &format!("second-{}", String::from_utf8_lossy(&one.name)), bytes);
    }
    corpus.add("trees", "second-all", Tree::new(vec![shared, folder, program, sparse]).unwrap().encode());
    let piece = |size| Piece { size, id };
    let stretches = [Stretch::Hole(1 << 30), Stretch::Data(piece(300_000)), Stretch::Hole(1 << 40)];
    corpus.add("objects", "sparse", encode_sparse(&stretches));
    corpus.add("objects", "pieces", encode_pieces(&[piece(1 << 20), piece(300_000), piece(1)]));
    corpus.add("objects", "path", "src/lib/deep.rs");
    corpus.add("objects", "compressible", [7; 300]);
    // A size claim, a hash and a frame: an empty last block that claims 200 MiB.
    let claim = 200u32 << 20;
    let frame = [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0][..], &claim.to_le_bytes(), &[1, 0, 0]].concat();
    corpus.add("objects", "claim", [&claim.to_le_bytes()[..], &[0; 32], &frame].concat());
}

fn packs(corpus: &Corpus) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    for round in 0..2u8 {
        let writer = store.writer().unwrap();
        for (kind, bytes) in
            [(ObjectKind::Chunk, &[round; 200][..]), (ObjectKind::Tree, &[1]), (ObjectKind::Document, b"{}")]
        {
            writer.put(kind, bytes).unwrap();
        }
        writer.finish().unwrap();
    }
    let packs = fs::read_dir(folder.path().join("packs")).unwrap().flatten();
    let pack = packs.map(|it| it.path()).find(|it| it.extension().is_some_and(|it| it == "pack")).unwrap();
    let bytes = fs::read(pack).unwrap();
    corpus.add("packs", "whole", [&[0][..], &bytes].concat());
    corpus.add("packs", "segments", [&[1][..], &bytes[16..]].concat());
    corpus.add("packs", "torn", [&[0][..], &bytes[..bytes.len() - 50]].concat());
    let mut damaged = bytes.clone();
    damaged[120] ^= 1;
    corpus.add("packs", "damaged", [&[0][..], &damaged].concat());
    corpus.add("segments", "two", &bytes[16..]);
    corpus.add("segments", "damaged", &damaged[16..]);
    // Index of the first segment, then its frames: input for a forged segment.
    let payload_len = u64::from_le_bytes(bytes[32..40].try_into().unwrap()) as usize;
    let (payload, rest) = bytes[16 + 96..].split_at(payload_len);
    let forged = [&[3][..], &rest[..3 * 48], payload].concat();
    corpus.add("segments", "forged", &forged);
    corpus.add("packs", "forged", [&[2][..], &forged].concat());
}

fn checkpoints(corpus: &Corpus) {
    let folder = tempfile::tempdir().unwrap();
    let (home, project) = (folder.path().join("home"), folder.path().join("project"));
    fs::create_dir_all(project.join("src/empty")).unwrap();
    fs::create_dir_all(project.join(".git/objects")).unwrap();
    fs::create_dir_all(project.join(".git/refs/heads")).unwrap();
    fs::write(project.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(project.join(".git/config"), "[core]\n\trepositoryformatversion = 0\n").unwrap();
    fs::write(project.join("src/main.rs"), "fn main() {}\n").unwrap();
    fs::write(project.join("notes"), "").unwrap();
    symlink("src/main.rs", project.join("link")).unwrap();
    let manager = CheckpointManager::open(&home).unwrap();
    let workspace = manager.workspaces().register(&project).unwrap();
    let session =
        manager.sessions().create(NewSession { request: "Work".to_owned(), ..NewSession::default() });
    let session = session.unwrap();
    let spec = PlanSpec {
        id: Some("work".to_owned()),
        steps: vec![StepSpec { steps: vec![StepSpec::new("b")], ..StepSpec::new("a") }],
        ..PlanSpec::new("Work")
    };
    manager.plans().create(&workspace, &spec).unwrap();
    let decision =
        NewDecision { question: "How?".to_owned(), choice: "so".to_owned(), ..NewDecision::default() };
    manager.plans().decide("work", decision).unwrap();
    let with_plan = CreateOptions {
        plan_id: Some("work".to_owned()),
        session_id: Some(session.id.to_uuid()),
        label: Some("with plan".to_owned()),
        ..CreateOptions::default()
    };
    for (name, options) in
        [("files", CreateOptions::default()), ("plan", with_plan), ("git", CreateOptions::default())]
    {
        if name == "git" {
            fs::write(home.join("config.toml"), "[capture]\ngit = \"full\"\n").unwrap();
        }
        let created = manager.create(&workspace, &options, &Silent).unwrap();
        let layout = folder.path().join(name);
        let exported = manager
            .export_checkpoint(&created.checkpoint, &layout, safepoint::OutsideMemory::Omitted, &Silent)
            .unwrap();
        corpus.add("imports", name, safepoint_fuzzing::bytes_of_layout(&exported.path));
        let parts = &created.checkpoint.parts;
        let manifest = safepoint_model::checkpoint::Manifest::new(parts.clone());
        corpus.add(
            "documents",
            &format!("manifest-{name}"),
            [b"\x00".to_vec(), document::encode(&manifest).unwrap()].concat(),
        );
        corpus.add(
            "documents",
            &format!("checkpoint-{name}"),
            [b"\x07".to_vec(), document::encode(&created.checkpoint).unwrap()].concat(),
        );
        corpus.add(
            "documents",
            &format!("coverage-{name}"),
            [b"\x02".to_vec(), document::encode(&created.coverage).unwrap()].concat(),
        );
    }
    let plan = manager.plans().get("work").unwrap().plan;
    corpus.add("documents", "plan", [b"\x06".to_vec(), document::encode(&plan).unwrap()].concat());
    corpus.add("documents", "paths", b"\x08[\"a\",\"b/c\"]");
    // Pages that refer to themselves.
    let name = |byte: u8| ObjectId::from_bytes([byte; 32]).to_string();
    let head = serde_json::to_value(plan.head()).unwrap();
    let first = serde_json::json!({"head": head, "steps": name(1), "decisions": name(1), "context": name(1), "outputs": name(1)});
    let page = serde_json::json!({"pages": [name(1), name(1), name(2)]});
    corpus.add("documents", "pages", format!("\x09{first}\n{page}\n{{\"items\":[]}}"));
    let session = safepoint_model::session::SessionDocument::of(&manager.sessions().get(session.id).unwrap());
    corpus.add("documents", "session", [b"\x03".to_vec(), document::encode(&session).unwrap()].concat());
}

fn texts(corpus: &Corpus) {
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plans");
    for file in fs::read_dir(plans).unwrap().flatten() {
        let name = file.file_name().into_string().unwrap();
        corpus.add("plan_files", &name.replace('.', "-"), fs::read(file.path()).unwrap());
    }
    corpus.add(
        "plan_files",
        "deep-json",
        format!("{{\"title\":\"x\",\"context\":{}1{}}}", "[".repeat(200), "]".repeat(200)),
    );
    let home = "[retention]\nkeep_last = 20\nkeep_within = \"7d\"\n[store]\ncap = \"2 GiB\"\n[capture]\nexcludes = [\"*.log\"]\ngit = \"full\"\n[checks]\ntest = \"make\"\ntest_timeout = \"5m\"\n[retention_agent]\nthin_daily_for = \"30d\"\n";
    let workspace = "label = \"x\"\n[retention]\nkeep_last = 3\n[capture]\nexcludes = [\"!a\", \"b{c,d}\"]\n";
    corpus.add("configuration", "both", format!("{home}\0{workspace}"));
    corpus.add("configuration", "home", home);
    corpus.add("configuration", "workspace", format!("\0{workspace}"));
    corpus.add(
        "ignore_files",
        "usual",
        "# note\n*.log\nbuild/\n!keep.log\n/only\na/**/b\n[a-z]?\n\0a/b.log\0build\0deep/only\0keep.log",
    );
    corpus.add("ignore_files", "braces", "{a,{b,c}}*\n[!x]\n\\#\n\0a\0deep/b");
    corpus.add("ignore_files", "wrong", "a[z-a]\n{{{\n\\\n\0a");
}

/// Writes each event of the recorded streams whose hook and tool are new, after a byte that chooses the agent.
fn hooks(corpus: &Corpus) {
    let streams = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agents/tests/streams");
    for (choice, agent) in CodingAgent::ALL.into_iter().enumerate() {
        let Ok(stream) = fs::read_to_string(streams.join(format!("{agent}.jsonl"))) else { continue };
        let mut seen = Vec::new();
        for line in stream.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let stdin = &line["stdin"];
            let tool = stdin.get("tool_name").or(stdin.get("toolName")).or(stdin["input"].get("tool"));
            let hook = stdin.get("hook_event_name").or(stdin.get("hook")).or(line.get("event"));
            let kind = format!("{hook:?} {tool:?} {:?}", stdin["input"].get("type"));
            if seen.len() < 12 && !seen.contains(&kind) {
                let bytes = [&[choice as u8][..], stdin.to_string().as_bytes()].concat();
                corpus.add("hooks", &format!("{agent}-{}", seen.len()), bytes);
                seen.push(kind);
            }
        }
    }
    for (name, text) in [
        ("shell", "sudo bash -c 'cd a && rm -rf \"$X\"' | tee log > out <<EOF\nx\nEOF"),
        ("find", "find . -name '*.o' -exec env A=b rm {} \\; ; git -C x reset --hard"),
        ("broken", "if then echo \"$(rm `x` ${y:-"),
    ] {
        corpus.add("hooks", name, [b"\x00", text.as_bytes()].concat());
    }
}
