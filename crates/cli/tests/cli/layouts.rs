//! Input and output of `export` and `import`.

use crate::sandbox::{Sandbox, name};
use insta::assert_snapshot;
use std::fs;
use std::os::unix::fs::symlink;

/// Only folder that an export wrote.
fn only(sandbox: &Sandbox, below: &str) -> String {
    let mut folders = fs::read_dir(sandbox.path(below)).unwrap();
    let folder = folders.next().unwrap().unwrap().path();
    assert!(folders.next().is_none());
    folder.to_str().unwrap().to_owned()
}

#[test]
fn a_checkpoint_goes_out_and_comes_back() {
    let sandbox = Sandbox::with_checkpoint();
    assert_snapshot!(sandbox.run(&["export", "@", "../out"]), @r#"
    Exported 01KG9YS9EGCQT0DH2X3200JHAF "first"
      4 files, 50 B
      $T/out/project/project_20260131_120003
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["export", "-q", "first", "../out", "--layout", "tree"]), @"
    $T/out/project/project_20260131_120003_2
    --- exit 0
    ");
    assert_snapshot!(sandbox.run(&["import", "../out/project/project_20260131_120003"]), @r#"
    Imported 01KG9YYQ9053R1T2RMWKDG33ZD "first"
      6 files and folders, 50 B; SIZE new in the store
      it was 01KG9YS9EGCQT0DH2X3200JHAF, taken 2026-01-31 12:00:03Z
    The workspace is as it was. Roll back to it: safepoint rollback 01KG9YYQ9053R1T2RMWKDG33ZD
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["import", "-q", "-m", "again", "--pin", "../out/project/project_20260131_120003_2"]), @r#"
    01KG9Z0HW054A6WWZ3EBH372PA
    --- exit 0
    "#);
    assert_snapshot!(sandbox.run(&["list"]), @r#"
    CHECKPOINT                  WHEN           KIND    CHANGED   STORED  LABEL
    01KG9Z0HW054A6WWZ3EBH372PA  4 minutes ago  manual  +6 ~0 -0  SIZE  again (pinned)
    01KG9YYQ9053R1T2RMWKDG33ZD  4 minutes ago  manual  +6 ~0 -0  SIZE  first
    01KG9YS9EGCQT0DH2X3200JHAF  4 minutes ago  manual  +6 ~0 -0  SIZE  first
    --- exit 0
    "#);
    sandbox.wreck();
    sandbox.run(&["rollback", "again"]);
    assert_eq!(sandbox.read("notes.txt"), "good\n");
    assert!(!sandbox.path("project/junk.log").exists());
}

#[test]
fn where_nothing_is_registered_an_import_registers() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.run(&["export", "@", "../out"]);
    let folder = only(&sandbox, "out/project");
    fs::create_dir(sandbox.path("other")).unwrap();
    // An invalid layout registers nothing.
    let nothing = sandbox.run(&["-C", "../other", "import", "../out"]);
    assert_snapshot!(nothing, @r#"
    --- stderr
    error: cannot import "../out": $T/out has no metadata.json in it
    Nothing was changed.
    hint: Name the folder that `safepoint export` printed: the one with metadata.json in it.
    --- exit 10
    "#);
    assert!(sandbox.run(&["-C", "../other", "list"]).contains("--- exit 10"));
    let told = sandbox.run(&["-C", "../other", "import", &folder]);
    assert!(told.contains("Registered $T/other as a workspace."), "{told}");
    sandbox.run(&["-C", "../other", "rollback", "@"]);
    assert_eq!(fs::read(sandbox.path("other/notes.txt")).unwrap(), b"good\n");
    // A link to the folder is the user's choice.
    symlink(&folder, sandbox.path("link")).unwrap();
    assert!(sandbox.run(&["import", "../link"]).contains("--- exit 0"));
}

#[test]
fn memory_outside_of_the_folder_goes_out_when_it_is_asked_for() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("../memory/notes.md", "remembered");
    sandbox.run(&["agent", "register", "coder", "--memory", "../memory", "--workspace", "."]);
    sandbox.run(&["create", "-m", "bound"]);
    let told = sandbox.run(&["export", "bound", "../plain"]);
    assert!(told.contains("is not in it; --with-memory adds it."), "{told}");
    let plain = only(&sandbox, "plain/project");
    assert!(!fs::exists(format!("{plain}/agent_memory/coder")).unwrap());
    let answer = sandbox.json(&["export", "bound", "../whole", "--with-memory", "--json"]);
    assert_eq!(answer["data"]["export"]["omitted"], 0);
    let whole = only(&sandbox, "whole/project");
    assert_eq!(fs::read(format!("{whole}/agent_memory/coder/memory/notes.md")).unwrap(), b"remembered");
    for folder in [plain, whole] {
        assert!(sandbox.run(&["import", &folder]).contains("Imported"));
    }
}

#[test]
fn what_is_wrong_with_a_folder_is_named() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.run(&["export", "@", "../out"]);
    let folder = only(&sandbox, "out/project");
    fs::write(format!("{folder}/files/notes.txt"), "evil\n").unwrap();
    assert_snapshot!(sandbox.run(&["import", &folder]), @r#"
    --- stderr
    error: cannot import "$T/out/project/project_20260131_120003": files/notes.txt: its bytes are not those that metadata.json lists
    Nothing was changed.
    hint: The folder was changed, or it was not copied completely. Export it again where it came from.
    --- exit 13
    "#);
    let path = format!("{folder}/metadata.json");
    let text = fs::read_to_string(&path).unwrap().replace("\"manual\"", "\"\\u001b[2J\"");
    fs::write(&path, text).unwrap();
    let told = sandbox.run(&["import", &folder]);
    assert!(told.contains("metadata.json: it cannot be understood") && !told.contains('\u{1b}'), "{told}");
    assert!(told.ends_with("--- exit 13\n"), "{told}");
    assert_eq!(sandbox.json(&["list", "--json"])["data"]["checkpoints"].as_array().unwrap().len(), 1);
}

#[test]
fn what_cannot_be_exported_is_told() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("file", "");
    assert_snapshot!(sandbox.run(&["export", "@", "file"]), @r#"
    --- stderr
    error: cannot export checkpoint "@": cannot write the export into $T/project/file
      because: cannot create the folder $T/project/file/project
      because: Not a directory (os error 20)
    Nothing was changed.
    hint: Name a folder that you may write.
    --- exit 1
    "#);
    assert_snapshot!(sandbox.run(&["export", "nothing", "../out"]), @r#"
    --- stderr
    error: cannot export checkpoint "nothing": no checkpoint is called "nothing"
    Nothing was changed.
    hint: `safepoint list` shows the checkpoints of this workspace.
    --- exit 10
    "#);
    assert_snapshot!(sandbox.run(&["export", "@", "../out", "--layout", "zip"]), @r#"
    --- stderr
    error: invalid value 'zip' for '--layout <LAYOUT>'
      [possible values: tree]

    For more information, try '--help'.
    --- exit 2
    "#);
    assert!(!sandbox.path("out").exists());
}

#[test]
fn agents_and_frameworks_go_out_and_do_not_become_projects() {
    let sandbox = Sandbox::with_checkpoint();
    fs::create_dir(sandbox.path("memory")).unwrap();
    fs::write(sandbox.path("memory/notes.md"), "remembered").unwrap();
    let memory = sandbox.path("memory");
    sandbox.run(&["agent", "register", "coder", "--memory", memory.to_str().unwrap()]);
    for (scope, agent, below) in [("agent", Some("coder"), "out/agent"), ("framework", None, "out/framework")]
    {
        let mut args = vec!["create", "--scope", scope, "--json"];
        args.extend(agent.into_iter().flat_map(|name| ["--agent", name]));
        let id = sandbox.json(&args)["data"]["checkpoint"]["id"].as_str().unwrap().to_owned();
        sandbox.run(&["export", &id, "../out"]);
        let folder = only(&sandbox, below);
        let configuration = fs::read_to_string(format!("{folder}/agent_configurations/coder.json")).unwrap();
        assert!(configuration.contains("\"name\":\"coder\""), "{configuration}");
        let state = fs::read_to_string(format!("{folder}/{scope}_state.json")).unwrap();
        assert!(state.contains("\"name\": \"memory\""), "{state}");
        let memory = fs::read(format!("{folder}/agent_memory/coder/memory/notes.md")).unwrap();
        assert_eq!(memory, b"remembered");
        let imported = sandbox.json(&["import", &folder, "--json"]);
        assert_eq!(
            (&imported["data"]["checkpoint"]["scope"], &imported["data"]["workspace"]),
            (&scope.into(), &serde_json::Value::Null)
        );
        assert_eq!(imported["data"]["import"]["missing"], serde_json::json!([]));
    }
    let agent = only(&sandbox, "out/agent");
    assert_eq!(fs::read(format!("{agent}/files/notes.md")).unwrap(), b"remembered");
}

#[test]
fn programs_get_the_folder_and_the_checkpoint() {
    let sandbox = Sandbox::with_checkpoint();
    let odd = sandbox.path("").join(name(b"odd \xff"));
    let args = ["export".as_ref(), "@".as_ref(), odd.as_os_str(), "--json".as_ref()];
    let exported = &sandbox.json(&args)["data"]["export"];
    assert!(exported["path"]["bytes"].is_string(), "{exported}");
    assert_eq!((&exported["layout"], &exported["files"]), (&"tree".into(), &4.into()));
    let answer = sandbox.json(&["export", "@", "../out", "--json", "-q"]);
    let folder = answer["data"]["export"]["path"].as_str().unwrap();
    let imported = sandbox.json(&["import", folder, "--json", "-q"]);
    let data = &imported["data"];
    assert_eq!(data["import"]["original"], answer["data"]["export"]["checkpoint"]);
    assert_eq!(data["import"]["path"], folder);
    assert_eq!(data["checkpoint"]["source_tool"], "import");
    assert_eq!(data["checkpoint"]["coverage"]["skipped"][0]["why"], "git");
}

#[test]
fn everything_goes_out_and_comes_back_where_it_is_registered() {
    let sandbox = Sandbox::with_checkpoint();
    sandbox.write("../other/file", "other");
    sandbox.write("../agent/settings.json", "{}");
    sandbox.write("../agent/memory/notes.md", "remember");
    sandbox.run(&["-C", "../other", "init"]);
    let register = |home: &str| {
        let register = [
            "agent",
            "register",
            "claude",
            "--config",
            "../agent/settings.json",
            "--memory",
            "../agent/memory",
        ];
        sandbox.run(&[&["--home", home], &register[..]].concat());
    };
    let home = sandbox.path("home").to_str().unwrap().to_owned();
    register(&home);
    let id = |args: &[&str]| {
        let answer = sandbox.json(&[args, &["--json"]].concat());
        answer["data"]["checkpoint"]["id"].as_str().unwrap().to_owned()
    };
    let all = id(&["create", "--scope", "framework", "-m", "all of it"]);
    sandbox.run(&["export", &all, "../out"]);
    let folder = only(&sandbox, "out/framework");
    assert_snapshot!(sandbox.run(&["import", &folder, "-m", "again"]), @r#"
    Imported 01KG9Z2CF08QE660SV1JHRKGTT "again" of scope framework
      5 folders, 0 plans, 1 agent
      9 files and folders, 65 B; SIZE new in the store
      it was 01KG9YYX4G9W3J567B8B5VXZDR, taken 2026-01-31 12:03:07Z
    All folders are as they were. Roll back to it: safepoint rollback 01KG9Z2CF08QE660SV1JHRKGTT
    --- exit 0
    "#);
    let again = id(&["import", &folder]);
    assert_snapshot!(sandbox.run(&["show", &again]), @r"
    Checkpoint 01KG9Z47206DPBTS55V6PYZR00
      label     all of it
      created   2026-01-31 12:03:07Z, 3 minutes ago
      kind      manual, reason manual
      scope     framework
      tool      import
      progress  files_created 3
      parts     5 folders, 0 plans, 1 agent
      holds     9 files and folders, 65 B
      changed   +0 ~0 -0
      stored    SIZE new in the store
      uuid      019c13f2-1c40-336c-bd64-a5d9adefe000
      integrity <hash>
      folder    $T/project  6 files and folders, 50 B
      folder    $T/other  1 file or folder, 5 B
      folder    $T/agent  1 file or folder, 2 B
      folder    $T/agent/memory  1 file or folder, 8 B
      folder    $T/home  0 files and folders, 0 B
      agent     claude
    --- exit 0
    ");
    sandbox.write("../agent/memory/notes.md", "forgotten");
    sandbox.write("../other/file", "broken");
    let told = sandbox.run(&["rollback", &again]);
    assert!(told.contains("agents restored: claude"), "{told}");
    assert_eq!(sandbox.read("../agent/memory/notes.md"), "remember");
    assert_eq!(sandbox.read("../other/file"), "other");
    // In another home all of it is unknown, and hints name the fix.
    let there = sandbox.path("there").to_str().unwrap().to_owned();
    assert_snapshot!(sandbox.run(&["--home", &there, "import", &folder]), @r#"
    Imported 01KG9Z9PV0BBBTXBTJZTZ70R34 "all of it" of scope framework
      5 folders, 0 plans, 1 agent
      9 files and folders, 65 B; SIZE new in the store
      it was 01KG9YYX4G9W3J567B8B5VXZDR, taken 2026-01-31 12:03:07Z
    All folders are as they were.
    --- stderr
    warning: Safepoint's settings in $T/home stay where they are
    warning: agent claude is not registered here
    warning: folder $T/project is not registered here
    warning: folder $T/other is not registered here
    warning: no agent that is registered here has the folder $T/agent
    warning: no agent that is registered here has the folder $T/agent/memory
    warning: it cannot be gone back to as it is: register what is missing, and import it again
    --- exit 0
    "#);
    let unknown = id(&["--home", &there, "import", &folder]);
    sandbox.run(&["--home", &there, "init"]);
    assert_snapshot!(sandbox.run(&["--home", &there, "rollback", &unknown]), @r#"
    --- stderr
    error: cannot roll back to checkpoint "01KG9ZBHE00NWGH1RJQT55GBYA": checkpoint 01KG9ZBHE00NWGH1RJQT55GBYA contains parts that are not registered on this machine: folder $T/project, folder $T/other, an agent's folder $T/agent, an agent's folder $T/agent/memory, agent claude
    Nothing was changed.
    hint: Register what is missing, or put what differs right, then import its folder again. `--part` goes back to a part of it.
    hint: Register it: safepoint init $T/project
    hint: Register it: safepoint init $T/other
    hint: Register it: safepoint agent register claude --config $T/agent/settings.json --memory $T/agent/memory
    --- exit 12
    "#);
    register(&there);
    sandbox.run(&["--home", &there, "-C", "../other", "init"]);
    let whole = id(&["--home", &there, "import", &folder]);
    sandbox.write("../agent/memory/notes.md", "forgotten");
    let told = sandbox.run(&["--home", &there, "rollback", &whole]);
    assert!(told.contains("agents restored: claude"), "{told}");
    assert_eq!(sandbox.read("../agent/memory/notes.md"), "remember");
}
