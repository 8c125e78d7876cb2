import type { Workspace } from "./index.js";

/** Hook of the Claude Agent SDK. */
export type Hook = (input: any, toolUseId: string | undefined, options: { signal: AbortSignal }) => Promise<{}>;

/** Hooks for the options of `query`: a checkpoint before each prompt and before Bash, Write and Edit. */
export function hooks(
  workspace: Workspace,
  options?: { onFailure?: (error: Error) => void },
): {
  UserPromptSubmit: { hooks: Hook[] }[];
  PreToolUse: { matcher: string; hooks: Hook[] }[];
};
