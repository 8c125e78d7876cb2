//! Laws of `install` and `uninstall`.

#![allow(clippy::disallowed_methods, reason = "tests set up folders and run command strings")]

use super::*;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use tempfile::TempDir;

struct Machine {
    folder: TempDir,
    folders: Folders,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["user", "project", "keep"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        let folders = Folders {
            user: root.join("user"),
            project: root.join("project"),
            keep: root.join("keep"),
            program: "/opt/it's here/safepoint".into(),
            claude: None,
            codex: None,
            config: None,
        };
        Self { folder, folders }
    }

    fn install(&self, place: InstallScope, agent: CodingAgent) -> usize {
        let changes = plan_install(&self.folders, place, agent).unwrap();
        changes.iter().for_each(|change| apply(&self.folders, change).unwrap());
        changes.iter().filter(|change| !change.is_nothing()).count()
    }

    fn uninstall(&self, place: InstallScope, agent: CodingAgent) {
        let changes = plan_uninstall(&self.folders, place, agent).unwrap();
        changes.iter().for_each(|change| apply(&self.folders, change).unwrap());
    }

    fn state(&self, place: InstallScope, agent: CodingAgent) -> Installed {
        installed(&self.folders, place, agent).unwrap()
    }

    /// Every path below the user's home and the project, with its content.
    fn picture(&self) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut found = Vec::new();
        let mut open = vec![self.folders.user.clone(), self.folders.project.clone()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path.clone());
                }
                found.push((path.clone(), fs::read(&path).ok()));
            }
        }
        found.sort();
        found
    }

    fn records(&self) -> usize {
        fs::read_dir(self.folders.keep.join("agents")).map_or(0, Iterator::count)
    }

    fn write(&self, agent: CodingAgent, place: InstallScope, index: usize, text: &str) -> PathBuf {
        let path = entries::targets(&self.folders, place, agent)[index].path.clone();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }
}

const PLACES: [InstallScope; 2] = [InstallScope::User, InstallScope::Project];

#[test]
fn install_then_uninstall_leaves_no_trace() {
    for agent in CodingAgent::ALL {
        for place in PLACES {
            let machine = Machine::new();
            assert_eq!(machine.state(place, agent), Installed::No);
            assert!(machine.install(place, agent) > 0);
            assert_eq!(machine.state(place, agent), Installed::Yes, "{agent}");
            let once = machine.picture();
            assert_eq!(machine.install(place, agent), 0, "{agent} is not idempotent");
            assert_eq!(machine.picture(), once);
            machine.uninstall(place, agent);
            assert_eq!(machine.picture(), [], "{agent}");
            assert_eq!(machine.records(), 0);
            machine.uninstall(place, agent);
            assert_eq!(machine.state(place, agent), Installed::No);
            drop(machine.folder);
        }
    }
}

/// Settings as people have them.
const SETTINGS: &str = "{\n\t// theme of the terminal\n\t\"theme\": \"dark\",   /* odd */\n\n\t\"hooks\": {\n\t\t\"Stop\": [\n\t\t\t{ \"hooks\": [ { \"type\": \"command\", \"command\": \"say done\" } ] } // mine\n\t\t],\n\t\t\"Other\": []\n\t},\n\t\"permissions\": {\"allow\": [\"Bash(ls:*)\", \"Ünïcode\"],},\n}\n";

#[test]
fn comments_order_and_indentation_stay() {
    let machine = Machine::new();
    let path = machine.write(CodingAgent::Claude, InstallScope::User, 0, SETTINGS);
    machine.install(InstallScope::User, CodingAgent::Claude);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(json::read(&text).unwrap()["hooks"]["Stop"][0]["hooks"][0]["command"], "say done");
    assert_eq!(json::read(&text).unwrap()["hooks"]["Stop"].as_array().unwrap().len(), 2);
    assert!(text.contains("\n\t\t\t{ \"hooks\": [ { \"type\": \"command\", \"command\": \"say done\" } ] }, // mine\n\t\t\t{\n\t\t\t\t\"hooks\": [\n"), "{text}");
    // Every line of the user is still there, in order; the only difference is a comma.
    let mut lines = text.lines();
    for line in SETTINGS.lines() {
        let bare = |line: &str| line.replace(',', "");
        assert!(lines.any(|other| bare(other) == bare(line)), "{line} is missing in {text}");
    }
    machine.uninstall(InstallScope::User, CodingAgent::Claude);
    assert_eq!(fs::read_to_string(&path).unwrap(), SETTINGS);
}

#[test]
fn edits_since_the_installation_stay_byte_for_byte() {
    for (from, to) in [
        ("\"dark\"", "\"light\""),
        ("{\n\t// theme", "{\n\n\n\t\"first\": 1,\n\t// theme"),
        ("\"allow\": [\"Bash", "\"allow\": [  \"Read\", \"Bash"),
        ("say done", "say finished"),
    ] {
        let machine = Machine::new();
        let path = machine.write(CodingAgent::Claude, InstallScope::User, 0, SETTINGS);
        machine.install(InstallScope::User, CodingAgent::Claude);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from));
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        machine.uninstall(InstallScope::User, CodingAgent::Claude);
        assert_eq!(fs::read_to_string(&path).unwrap(), SETTINGS.replacen(from, to, 1));
    }
}

#[test]
fn scattered_edits_leave_only_the_users_entries() {
    let machine = Machine::new();
    let path = machine.write(CodingAgent::Claude, InstallScope::User, 0, SETTINGS);
    machine.install(InstallScope::User, CodingAgent::Claude);
    let text = fs::read_to_string(&path).unwrap();
    // The first and the last line change, so that every insertion is in between.
    let text = text.replacen("dark", "light", 1).replacen("Ünïcode", "Plain", 1);
    // A hook of the user in a group of ours.
    let text = text.replacen("\"matcher\": \"^(?!(Read|Grep|Glob)$)\",\n\t\t\t\t\"hooks\": [", "\"matcher\": \"^(?!(Read|Grep|Glob)$)\",\n\t\t\t\t\"hooks\": [ {\"type\": \"command\", \"command\": \"mine\"},", 1);
    fs::write(&path, &text).unwrap();
    machine.uninstall(InstallScope::User, CodingAgent::Claude);
    let left = fs::read_to_string(&path).unwrap();
    assert!(!left.contains("safepoint"), "{left}");
    let value = json::read(&left).unwrap();
    assert_eq!(value["hooks"]["PreToolUse"][0]["hooks"][0]["command"], "mine");
    assert_eq!(value["theme"], "light");
    assert!(left.contains("// mine") && left.contains("/* odd */"), "{left}");
}

#[test]
fn a_file_rewritten_by_the_agent_loses_only_our_entries() {
    for agent in CodingAgent::ALL {
        for place in PLACES {
            let machine = Machine::new();
            machine.install(place, agent);
            for target in entries::targets(&machine.folders, place, agent) {
                if let Content::Json(..) = target.content {
                    let mut value = json::read(&fs::read_to_string(&target.path).unwrap()).unwrap();
                    value["added"] = 1.into();
                    fs::write(&target.path, value.to_string()).unwrap();
                }
            }
            assert_eq!(machine.state(place, agent), Installed::Yes, "{agent}");
            machine.uninstall(place, agent);
            for target in entries::targets(&machine.folders, place, agent) {
                if let Content::Json(new, _) = target.content {
                    let mut expected = json::read(new).unwrap();
                    expected["added"] = 1.into();
                    let left = json::read(&fs::read_to_string(&target.path).unwrap()).unwrap();
                    assert_eq!(left, expected, "{agent}");
                }
            }
        }
    }
}

#[test]
fn entries_of_others_keep_their_position() {
    let machine = Machine::new();
    let path = machine.write(CodingAgent::Codex, InstallScope::User, 0, "{}");
    machine.install(InstallScope::User, CodingAgent::Codex);
    // Another program appends its hook after ours, then the path of Safepoint changes.
    let mut value = json::read(&fs::read_to_string(&path).unwrap()).unwrap();
    let other = serde_json::json!({ "hooks": [{ "type": "command", "command": "other" }] });
    value["hooks"]["Stop"].as_array_mut().unwrap().push(other.clone());
    fs::write(&path, serde_json::to_string_pretty(&value).unwrap()).unwrap();
    let moved = Machine {
        folders: Folders { program: "/new/safepoint".into(), ..machine.folders.clone() },
        ..machine
    };
    assert_eq!(moved.state(InstallScope::User, CodingAgent::Codex), Installed::Partly);
    moved.install(InstallScope::User, CodingAgent::Codex);
    let value = json::read(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(value["hooks"]["Stop"][1], other);
    assert!(value["hooks"]["Stop"][0].to_string().contains("/new/safepoint"));
    assert_eq!(moved.state(InstallScope::User, CodingAgent::Codex), Installed::Yes);
    moved.uninstall(InstallScope::User, CodingAgent::Codex);
    let value = json::read(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(value, serde_json::json!({ "hooks": { "Stop": [other] } }));
}

#[test]
fn a_new_path_of_the_program_replaces_the_old_one() {
    for agent in CodingAgent::ALL {
        let machine = Machine::new();
        machine.install(InstallScope::User, agent);
        let moved = Machine {
            folders: Folders { program: "/new/safepoint".into(), ..machine.folders.clone() },
            ..machine
        };
        assert_ne!(moved.state(InstallScope::User, agent), Installed::Yes);
        moved.install(InstallScope::User, agent);
        assert_eq!(moved.state(InstallScope::User, agent), Installed::Yes, "{agent}");
        for (path, content) in moved.picture() {
            let text = String::from_utf8(content.unwrap_or_default()).unwrap();
            assert!(!text.contains("it's here"), "{}: {text}", path.display());
        }
        moved.uninstall(InstallScope::User, agent);
        assert_eq!(moved.picture(), [], "{agent}");
    }
}

#[test]
fn entries_without_a_record_are_removed() {
    for agent in CodingAgent::ALL {
        let machine = Machine::new();
        machine.install(InstallScope::Project, agent);
        fs::remove_dir_all(machine.folders.keep.join("agents")).unwrap();
        machine.uninstall(InstallScope::Project, agent);
        assert_eq!(machine.state(InstallScope::Project, agent), Installed::No, "{agent}");
        for (path, content) in machine.picture() {
            assert!(
                !String::from_utf8(content.unwrap_or_default()).unwrap().contains("safepoint"),
                "{}",
                path.display()
            );
        }
    }
}

/// Plans an installation that must fail, and checks that no file changed.
fn refused(machine: &Machine, place: InstallScope, agent: CodingAgent) -> String {
    let before = machine.picture();
    let error = plan_install(&machine.folders, place, agent).unwrap_err();
    assert_eq!(machine.picture(), before);
    error.to_string()
}

#[test]
fn hostile_files_are_refused_and_stay() {
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let huge = format!("{{\"a\": \"{}\"}}", "x".repeat(33 * 1024 * 1024));
    for (text, reason) in [
        ("{\"hooks\": 5}", "unexpected type"),
        ("{\"hooks\": {\"Stop\": {}}}", "unexpected type"),
        ("{\"hooks\": []}", "unexpected type"),
        ("{\"hooks\": {}, \"hooks\": {}}", "appears twice"),
        ("{\"hooks\": {\"Stop\": [], \"Stop\": []}}", "appears twice"),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("{\"a\": 1", "cannot parse"),
        ("{a: 1}", "cannot parse"),
        ("root:x:0:0:root:/root:/bin/bash\n", "cannot parse"),
        (deep.as_str(), "nesting"),
        (huge.as_str(), "larger than 32 MiB"),
    ] {
        let machine = Machine::new();
        machine.write(CodingAgent::Claude, InstallScope::User, 0, text);
        let told = refused(&machine, InstallScope::User, CodingAgent::Claude);
        assert!(told.contains(reason), "{told}");
    }
    let machine = Machine::new();
    let path = machine.write(CodingAgent::Claude, InstallScope::User, 0, "");
    fs::write(path, b"{\"a\": \"\xff\"}").unwrap();
    assert!(refused(&machine, InstallScope::User, CodingAgent::Claude).contains("not UTF-8"));
    let machine = Machine::new();
    machine.write(
        CodingAgent::Cursor,
        InstallScope::User,
        1,
        "{\"mcpServers\": {\"safepoint\": {\"command\": \"other\"}}}",
    );
    assert!(refused(&machine, InstallScope::User, CodingAgent::Cursor).contains("another entry"));
    let machine = Machine::new();
    machine.write(CodingAgent::Opencode, InstallScope::User, 0, "export const Mine = 1\n");
    assert!(refused(&machine, InstallScope::User, CodingAgent::Opencode).contains("not a file of Safepoint"));
}

#[test]
fn links_are_followed_to_own_regular_files_and_not_out_of_a_project() {
    let machine = Machine::new();
    let real = machine.folders.keep.join("dotfile.json");
    fs::write(&real, SETTINGS).unwrap();
    let link = machine.write(CodingAgent::Claude, InstallScope::User, 0, "");
    fs::remove_file(&link).unwrap();
    symlink(&real, &link).unwrap();
    machine.install(InstallScope::User, CodingAgent::Claude);
    assert!(link.is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("safepoint"));
    machine.uninstall(InstallScope::User, CodingAgent::Claude);
    assert_eq!(fs::read_to_string(&real).unwrap(), SETTINGS);

    let link = machine.write(CodingAgent::Claude, InstallScope::Project, 0, "");
    fs::remove_file(&link).unwrap();
    symlink(&real, &link).unwrap();
    assert!(refused(&machine, InstallScope::Project, CodingAgent::Claude).contains("out of the project"));
    fs::remove_file(&link).unwrap();
    fs::remove_dir(link.parent().unwrap()).unwrap();
    symlink(machine.folders.keep.as_path(), link.parent().unwrap()).unwrap();
    assert!(refused(&machine, InstallScope::Project, CodingAgent::Claude).contains("out of the project"));
    let foreign = machine.write(CodingAgent::Cursor, InstallScope::User, 0, "{}");
    // Only root may give a file away.
    if std::os::unix::fs::chown(&foreign, Some(54_321), None).is_ok() {
        assert!(refused(&machine, InstallScope::User, CodingAgent::Cursor).contains("another user"));
    }
    let link = machine.write(CodingAgent::Gemini, InstallScope::User, 0, "");
    fs::remove_file(&link).unwrap();
    symlink("/nowhere/at/all", &link).unwrap();
    assert!(refused(&machine, InstallScope::User, CodingAgent::Gemini).contains("missing file"));
    fs::remove_file(&link).unwrap();
    symlink("/dev/null", &link).unwrap();
    assert!(refused(&machine, InstallScope::User, CodingAgent::Gemini).contains("not a regular file"));
}

#[test]
fn tables_that_codex_appends_stay() {
    let trust = "\n[hooks.state.\"/x:stop:0:0\"]\ntrusted_hash = \"sha256:0\"\n";
    for text in
        ["", "# mine\r\nmodel = 'x'\r\n", "mcp_servers = { a = { command = 'b' } } # c\n", "[a]\nb = 1"]
    {
        let machine = Machine::new();
        let path = machine.write(CodingAgent::Codex, InstallScope::User, 1, text);
        machine.install(InstallScope::User, CodingAgent::Codex);
        let with = fs::read_to_string(&path).unwrap();
        machine.uninstall(InstallScope::User, CodingAgent::Codex);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        machine.install(InstallScope::User, CodingAgent::Codex);
        fs::write(&path, with + trust).unwrap();
        machine.uninstall(InstallScope::User, CodingAgent::Codex);
        let left = fs::read_to_string(&path).unwrap();
        assert!(left.ends_with(trust) && !left.contains("safepoint"), "{left:?}");
        assert!(left.starts_with(text.trim_end()) || text.contains('{'), "{left:?}");
    }
}

#[test]
fn a_linked_settings_folder_is_restored_whole() {
    for agent in CodingAgent::ALL {
        let machine = Machine::new();
        let dotfiles = machine.folders.user.join("dotfiles");
        fs::create_dir(&dotfiles).unwrap();
        let link = machine.folders.of(agent, InstallScope::User);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&dotfiles, &link).unwrap();
        let before = machine.picture();
        machine.install(InstallScope::User, agent);
        assert_ne!(machine.picture(), before);
        machine.uninstall(InstallScope::User, agent);
        assert_eq!(machine.picture(), before, "{agent}");
        assert_eq!(machine.records(), 0);
    }
}

#[test]
fn a_read_only_file_is_refused_and_a_mode_is_kept() {
    let machine = Machine::new();
    let path = machine.write(CodingAgent::Claude, InstallScope::User, 0, "{}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    assert!(refused(&machine, InstallScope::User, CodingAgent::Claude).contains("read-only"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    machine.install(InstallScope::User, CodingAgent::Claude);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
}

#[test]
fn a_file_that_changed_since_the_plan_is_not_overwritten() {
    let machine = Machine::new();
    let path = machine.write(CodingAgent::Claude, InstallScope::User, 0, "{}");
    let changes = plan_install(&machine.folders, InstallScope::User, CodingAgent::Claude).unwrap();
    fs::write(&path, "{\"new\": 1}").unwrap();
    let error = apply(&machine.folders, &changes[0]).unwrap_err();
    assert!(matches!(error, InstallError::Busy { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"new\": 1}");
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "a temporary file is left");
    machine.uninstall(InstallScope::User, CodingAgent::Claude);
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"new\": 1}");
}

#[test]
fn hooks_fit_the_agent() {
    let machine = Machine::new();
    let folders = &machine.folders;
    let user = entries::command(folders, InstallScope::User, CodingAgent::Claude, None);
    assert_eq!(user, r#"out=$('/opt/it'\''s here/safepoint' hook claude) || out='{}'; printf %s "$out""#);
    let project = entries::command(folders, InstallScope::Project, CodingAgent::Copilot, Some("preToolUse"));
    assert_eq!(
        project,
        r#"command -v safepoint >/dev/null || { printf '{}'; exit 0; }; out=$(safepoint hook copilot preToolUse) || out='{}'; printf %s "$out""#
    );
    for agent in CodingAgent::ALL {
        machine.install(InstallScope::User, agent);
    }
    let read = |name: &str| json::read(&fs::read_to_string(folders.user.join(name)).unwrap()).unwrap();
    let claude = read(".claude/settings.json");
    assert_eq!(claude["hooks"]["PreToolUse"][0]["matcher"], "^(?!(Read|Grep|Glob)$)");
    assert_eq!(claude["hooks"]["Stop"][0]["hooks"][0]["timeout"], 30);
    assert_eq!(read(".claude.json")["mcpServers"]["safepoint"]["args"][0], "mcp");
    let codex = read(".codex/hooks.json");
    assert_eq!(codex["hooks"]["Interrupt"][0]["hooks"][0]["timeout"], 3);
    assert_eq!(codex["hooks"]["SessionEnd"][0]["hooks"][0]["timeout"], 3);
    assert!(!codex.to_string().contains("matcher"));
    let gemini = read(".gemini/settings.json");
    assert_eq!(gemini["hooks"]["BeforeTool"][0]["hooks"][0]["timeout"], 30_000);
    assert!(gemini["hooks"].get("PreCompress").is_none());
    let copilot = read(".copilot/hooks/safepoint.json");
    assert_eq!(
        (&copilot["version"], &copilot["hooks"]["agentStop"][0]["timeoutSec"]),
        (&1.into(), &30.into())
    );
    assert_eq!(read(".config/opencode/opencode.json")["mcp"]["safepoint"]["command"][1], "mcp");
    assert_eq!(read(".cursor/hooks.json")["hooks"]["stop"][0]["timeout"], 30);
}

/// Runs a command as an agent does.
fn shell(command: &str) -> (Option<i32>, String) {
    let output = std::process::Command::new("sh").args(["-c", command]).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_command_survives_a_dead_or_missing_program() {
    let machine = Machine::new();
    let program = machine.folders.keep.join("it's safepoint");
    let folders = Folders { program: program.clone(), ..machine.folders.clone() };
    let command = entries::command(&folders, InstallScope::User, CodingAgent::Claude, None);
    assert_eq!(shell(&command), (Some(0), "{}".to_owned()));
    for (script, answer) in [("echo '{\"a\": 1}'", "{\"a\": 1}"), ("kill -9 $$", "{}"), ("exit 2", "{}")] {
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(shell(&command), (Some(0), answer.to_owned()), "{script}");
    }
    // Those of a project are shared with people who lack the program, and imported by other agents.
    let path = machine.folders.keep.display();
    for agent in CodingAgent::ALL {
        let command = entries::command(&folders, InstallScope::Project, agent, None);
        assert_eq!(shell(&format!("PATH=/nowhere; {command}")), (Some(0), "{}".to_owned()), "{agent}");
        fs::write(machine.folders.keep.join("safepoint"), "#!/bin/sh\nkill -9 $$\n").unwrap();
        fs::set_permissions(machine.folders.keep.join("safepoint"), fs::Permissions::from_mode(0o755))
            .unwrap();
        assert_eq!(shell(&format!("PATH={path}; {command}")), (Some(0), "{}".to_owned()), "{agent}");
    }
    let plugin = claude_plugin(&folders, "1.0.0");
    let (_, hooks) = plugin.iter().find(|(name, _)| *name == "hooks/hooks.json").unwrap();
    let hooks: serde_json::Value = serde_json::from_str(hooks).unwrap();
    for (event, groups) in hooks["hooks"].as_object().unwrap() {
        let command = groups[0]["hooks"][0]["command"].as_str().unwrap();
        assert_eq!(shell(&format!("PATH=/nowhere; {command}")), (Some(0), "{}".to_owned()), "{event}");
    }
}

#[test]
fn a_turn_of_claude_that_an_error_of_the_api_ends_has_a_hook() {
    let machine = Machine::new();
    machine.install(InstallScope::User, CodingAgent::Claude);
    let text = fs::read_to_string(machine.folders.user.join(".claude/settings.json")).unwrap();
    let command = &json::read(&text).unwrap()["hooks"]["StopFailure"][0]["hooks"][0]["command"];
    assert!(command.as_str().unwrap().contains("hook claude"), "{text}");
}

/// JSON text with odd layout: comments, blanks, trailing commas.
fn odd_json() -> impl Strategy<Value = String> {
    let blank = || {
        prop_oneof![
            Just(""),
            Just(" "),
            Just("\n"),
            Just("\n  "),
            Just("\r\n\t"),
            Just(" /* c */ "),
            Just(" // c\n")
        ]
    };
    let leaf = prop_oneof![
        Just("1".to_owned()),
        Just("\"é // no\"".to_owned()),
        Just("null".to_owned()),
        Just("[]".to_owned()),
        Just("{ }".to_owned()),
    ];
    let group = prop_oneof![
        Just("{\"hooks\": [{\"type\": \"command\", \"command\": \"x\"}]}".to_owned()),
        Just("{\n \"hooks\": [\n ]}".to_owned()),
        Just("7".to_owned()),
    ];
    let list = (prop::collection::vec((blank(), group, blank()), 0..3), any::<bool>(), blank());
    let events = prop::collection::vec((blank(), list, blank()), 0..3);
    let others = prop::collection::vec((blank(), leaf, blank()), 0..3);
    (events, others, any::<[bool; 3]>(), blank(), blank()).prop_map(|(events, others, flags, first, last)| {
        let comma = |is_wanted: bool, count: usize| if is_wanted && count > 0 { "," } else { "" };
        let events: Vec<String> = events
            .iter()
            .zip(["PreToolUse", "Stop", "Mine"])
            .map(|((before, (groups, trailing, end), after), name)| {
                let items: Vec<String> =
                    groups.iter().map(|(b, group, a)| format!("{b}{group}{a}")).collect();
                format!(
                    "{before}\"{name}\": [{}{}{end}]{after}",
                    items.join(","),
                    comma(*trailing, items.len())
                )
            })
            .collect();
        let mut properties: Vec<String> =
            others.iter().enumerate().map(|(i, (b, leaf, a))| format!("{b}\"k{i}\":{leaf}{a}")).collect();
        if flags[0] {
            let hooks = format!("\"hooks\": {{{}{}{last}}}", events.join(","), comma(flags[1], events.len()));
            properties.insert(properties.len() / 2, hooks);
        }
        format!("{first}{{{}{}{last}}}{first}", properties.join(","), comma(flags[2], properties.len()))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn install_then_uninstall_is_the_identity(text in odd_json(), index in 0..6usize) {
        let machine = Machine::new();
        let agent = CodingAgent::ALL[index];
        let targets = entries::targets(&machine.folders, InstallScope::User, agent);
        let at = targets.iter().position(|target| matches!(target.content, Content::Json(..))).unwrap();
        let path = machine.write(agent, InstallScope::User, at, &text);
        let value = json::read(&text).unwrap();
        machine.install(InstallScope::User, agent);
        let with = fs::read_to_string(&path).unwrap();
        prop_assert_eq!(machine.state(InstallScope::User, agent), Installed::Yes);
        prop_assert_eq!(machine.install(InstallScope::User, agent), 0);
        machine.uninstall(InstallScope::User, agent);
        prop_assert_eq!(fs::read_to_string(&path).unwrap(), text.clone());

        // An edit at the end, and the same without any record.
        machine.install(InstallScope::User, agent);
        fs::write(&path, with.clone() + "\n// later\n").unwrap();
        machine.uninstall(InstallScope::User, agent);
        prop_assert_eq!(fs::read_to_string(&path).unwrap(), text.clone() + "\n// later\n");
        fs::write(&path, &with).unwrap();
        machine.uninstall(InstallScope::User, agent);
        let left = fs::read_to_string(&path).unwrap();
        prop_assert!(!left.contains("safepoint"), "{}", left);
        let mut left = json::read(&left).unwrap();
        // Without a record, empty lists of our events go, too.
        let mut value = value;
        for value in [&mut left, &mut value] {
            prune(value);
        }
        prop_assert_eq!(left, value);
    }
}

/// Removes empty lists and objects of hooks and servers.
fn prune(value: &mut serde_json::Value) {
    let object = value.as_object_mut().unwrap();
    if let Some(hooks) = object.get_mut("hooks").and_then(serde_json::Value::as_object_mut) {
        hooks.retain(|_, list| list.as_array().is_none_or(|list| !list.is_empty()));
    }
    object.retain(|key, value| key != "hooks" || value.as_object().is_none_or(|hooks| !hooks.is_empty()));
}

#[test]
fn printed_plugin_and_snippet_are_whole() {
    let machine = Machine::new();
    let files = claude_plugin(&machine.folders, "1.2.3");
    for (name, text) in &files {
        if name.ends_with(".json") {
            json::read(text).unwrap();
        }
        assert!(!text.contains("/opt/"), "{name} names a path of this machine");
    }
    assert!(
        files.iter().any(|(name, text)| *name == "hooks/hooks.json" && text.contains("PostToolUseFailure"))
    );
    assert!(agents_md().starts_with("## "));
}
