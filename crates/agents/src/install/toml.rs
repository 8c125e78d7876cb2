//! Edits of Codex's `config.toml`: one table, appended at the end.

use super::splice::Grown;
use toml_edit::{Array, DocumentMut, InlineTable, Item, TableLike, Value};

const SERVERS: &str = "mcp_servers";
const NAME: &str = "safepoint";

fn parsed(text: &str) -> Result<DocumentMut, String> {
    text.parse::<DocumentMut>().map_err(|error| error.message().to_owned())
}

fn server(document: &DocumentMut) -> Result<Option<&dyn TableLike>, String> {
    let Some(servers) = document.get(SERVERS) else { return Ok(None) };
    let wrong = |what: &str| format!("{what:?} has an unexpected type");
    let servers = servers.as_table_like().ok_or_else(|| wrong(SERVERS))?;
    match servers.get(NAME) {
        None => Ok(None),
        Some(server) => server.as_table_like().map(Some).ok_or_else(|| wrong("mcp_servers.safepoint")),
    }
}

fn text_of<'t>(table: &'t dyn TableLike, key: &str) -> Option<&'t str> {
    table.get(key).and_then(Item::as_str)
}

/// Returns true for a table that `install` made, whatever the path of the program.
fn is_ours(table: &dyn TableLike) -> bool {
    let args = table.get("args").and_then(Item::as_array);
    let mcp = args.is_some_and(|args| args.len() == 1 && args.get(0).and_then(Value::as_str) == Some("mcp"));
    let program = text_of(table, "command").and_then(|command| command.rsplit('/').next());
    mcp && program.is_some_and(|program| program.starts_with("safepoint"))
}

/// Returns true if the server is registered with this program.
pub(super) fn has(text: &str, program: &str) -> Result<bool, String> {
    let document = parsed(text)?;
    Ok(server(&document)?.is_some_and(|table| is_ours(table) && text_of(table, "command") == Some(program)))
}

/// Registers the server.
pub(super) fn add(grown: &mut Grown, program: &str) -> Result<(), String> {
    let mut document = parsed(&grown.text)?;
    match server(&document)? {
        Some(table) if is_ours(table) && text_of(table, "command") == Some(program) => return Ok(()),
        Some(table) if is_ours(table) => {
            // Keys that the user added to the table stay.
            if let Some(command) = document.get_mut(SERVERS).and_then(|servers| servers.get_mut(NAME)) {
                command["command"] = toml_edit::value(program);
            }
            grown.text = document.to_string();
            grown.inserted.clear();
            return Ok(());
        }
        Some(_) => return Err("it has another server named \"safepoint\"".to_owned()),
        None => {}
    }
    if let Some(Item::Value(Value::InlineTable(servers))) = document.get_mut(SERVERS) {
        let mut table = InlineTable::new();
        table.insert("command", program.into());
        table.insert("args", Value::Array(Array::from_iter(["mcp"])));
        servers.insert(NAME, Value::InlineTable(table));
        grown.text = document.to_string();
        grown.inserted.clear();
        return Ok(());
    }
    let newline = if grown.text.contains("\r\n") { "\r\n" } else { "\n" };
    let gap = match grown.text.as_str() {
        "" => "",
        text if text.ends_with('\n') => newline,
        _ => &newline.repeat(2),
    };
    let command = Value::from(program).to_string();
    let lines = [
        format!("[{SERVERS}.{NAME}]"),
        format!("command = {}", command.trim()),
        "args = [\"mcp\"]".to_owned(),
    ];
    let table = format!("{gap}{}{newline}", lines.join(newline));
    grown.insert(grown.text.len(), &table);
    parsed(&grown.text).map(|_| ())
}

/// Removes the server.
pub(super) fn remove(text: &str) -> Result<String, String> {
    let mut document = parsed(text)?;
    if !server(&document)?.is_some_and(is_ours) {
        return Ok(text.to_owned());
    }
    let servers = document.get_mut(SERVERS).and_then(Item::as_table_like_mut);
    let empty = servers.is_some_and(|servers| {
        servers.remove(NAME);
        servers.is_empty()
    });
    // An implicit table has no header of its own.
    if empty && document.get(SERVERS).and_then(Item::as_table).is_some_and(toml_edit::Table::is_implicit) {
        document.remove(SERVERS);
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# mine\nmodel = \"x\"  # fast\n\n[mcp_servers.other]\ncommand = 'a'\n";

    fn added(text: &str) -> String {
        let mut grown = Grown::new(text.to_owned());
        add(&mut grown, "/opt/safe point/safepoint").unwrap();
        assert!(has(&grown.text, "/opt/safe point/safepoint").unwrap(), "{}", grown.text);
        grown.text
    }

    #[test]
    fn the_server_is_appended_and_removed_exactly() {
        for text in ["", FILE, "model = 'x'", "mcp_servers.a.command = 'b'\n", "[mcp_servers]\n"] {
            let with = added(text);
            assert!(with.starts_with(text), "{with}");
            assert_eq!(remove(&with).unwrap().trim_end(), text.trim_end());
        }
    }

    #[test]
    fn an_inline_table_gets_the_server_in_it() {
        let with = added("mcp_servers = { a = { command = \"b\" } } # note\nx = 1\n");
        assert!(with.ends_with(" # note\nx = 1\n"), "{with}");
        assert!(!remove(&with).unwrap().contains("safepoint"));
    }

    #[test]
    fn foreign_and_odd_values_are_refused() {
        for text in [
            "mcp_servers = 5",
            "[mcp_servers]\nsafepoint = 1",
            "[mcp_servers.safepoint]\ncommand = 'other'\n",
            "a = = b",
        ] {
            assert!(add(&mut Grown::new(text.to_owned()), "safepoint").is_err(), "{text}");
        }
    }
}
