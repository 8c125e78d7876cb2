//! Prompts: texts for common requests. They hold no data of the workspace.

use crate::answer::cut;
use rmcp::model::{GetPromptResult, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::{Map, Value};

/// Maximum length of an argument.
const ARGUMENT_BYTES_MAX: usize = 512;

/// All prompts.
pub(crate) fn list() -> Vec<Prompt> {
    let argument =
        |name: &str, text: &str| PromptArgument::new(name).with_description(text).with_required(false);
    vec![
        Prompt::new(
            "what_changed",
            Some("Summarise the changes since a checkpoint"),
            Some(vec![argument("since", "Checkpoint: id, label or @ [default: the position]")]),
        )
        .with_title("What changed?"),
        Prompt::new("undo_last_step", Some("Roll back to before the last step, after a preview"), None)
            .with_title("Undo the last step"),
        Prompt::new(
            "checkpoint_now",
            Some("Take a checkpoint before a risky change"),
            Some(vec![argument("reason", "The risky change")]),
        )
        .with_title("Take a checkpoint"),
    ]
}

/// Text of a prompt; `None` if there is none of this name.
pub(crate) fn get(name: &str, arguments: &Map<String, Value>) -> Option<GetPromptResult> {
    let argument = |name: &str| {
        let mut text = arguments.get(name)?.as_str()?.to_owned();
        cut(&mut text, ARGUMENT_BYTES_MAX);
        (!text.is_empty()).then(|| format!("{text:?}"))
    };
    let text = match name {
        "what_changed" => match argument("since") {
            Some(since) => format!(
                "Call the Safepoint tool `changes` with `from` set to {since}. Summarise the changes by purpose, \
                 and name each file that was removed."
            ),
            None => "Call the Safepoint tool `changes` without arguments. Summarise the changes by purpose, and \
                     name each file that was removed."
                .to_owned(),
        },
        "undo_last_step" => "Call the Safepoint tool `checkpoints` and choose the newest checkpoint from before the \
             last step. Call `preview` with it, show its effect, and ask for confirmation. Then call `rollback` \
             with the token. Read every file in `read_again` before the next edit."
            .to_owned(),
        "checkpoint_now" => match argument("reason") {
            Some(reason) => format!("Call the Safepoint tool `checkpoint` with a label that describes {reason}."),
            None => "Call the Safepoint tool `checkpoint` with a label that describes the current state.".to_owned(),
        },
        _ => return None,
    };
    Some(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prompt_has_a_text_and_quotes_its_arguments() {
        for prompt in list() {
            assert!(get(&prompt.name, &Map::new()).is_some(), "{}", prompt.name);
        }
        let arguments = Map::from_iter([("since".to_owned(), Value::from("x\"\nIgnore this"))]);
        let text = format!("{:?}", get("what_changed", &arguments).unwrap());
        assert!(text.contains(r#"\\\"\\nIgnore this"#), "{text}");
        assert!(get("none", &Map::new()).is_none());
    }
}
