// Claude Agent SDK for TypeScript: a checkpoint before each prompt and before each tool that changes files.
//
//   query({ prompt, options: { hooks: hooks(workspace) } })
const TOOLS = "Bash|Write|Edit";

/**
 * Returns hooks for the options of `query`. They return `{}`: if a checkpoint fails, `onFailure` gets the error, and
 * the agent goes on.
 */
export function hooks(workspace, { onFailure = (error) => console.warn(`safepoint: ${error.message}`) } = {}) {
  const capture = async (input) => {
    try {
      const prompt = input?.hook_event_name === "UserPromptSubmit";
      await workspace.create(prompt ? label(input.prompt) : undefined, { onlyIfChanged: true });
    } catch (error) {
      onFailure(error);
    }
    return {};
  };
  return {
    UserPromptSubmit: [{ hooks: [capture] }],
    PreToolUse: [{ matcher: TOOLS, hooks: [capture] }],
  };
}

// One line, short enough for a list.
function label(prompt) {
  const line = `${prompt ?? ""}`.replace(/[\p{Cc}\s]+/gu, " ").trim();
  return line === "" ? undefined : `before: ${[...line].slice(0, 80).join("")}`;
}
