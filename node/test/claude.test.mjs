// Hooks for the Claude Agent SDK, called as the SDK calls them.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { hooks } from "../claude.js";
import { Workspace } from "../index.js";
import { world } from "./world.mjs";

test("each prompt and each tool that follows a change has a checkpoint before it", async (t) => {
  const { home, project, file } = world(t);
  const workspace = await Workspace.open(project, { home });
  t.after(() => workspace.close());
  writeFileSync(file("a"), "good");
  const { UserPromptSubmit, PreToolUse } = hooks(workspace);
  const call = ([{ hooks: [hook] }], input) => hook(input, undefined, { signal: new AbortController().signal });
  const told = [await call(UserPromptSubmit, { hook_event_name: "UserPromptSubmit", prompt: "Write\n a \u0007worse note" })];
  for (let turn = 0; turn < 2; turn++) {
    told.push(await call(PreToolUse, { hook_event_name: "PreToolUse", tool_name: "Bash" }));
  }
  assert.deepEqual(told, [{}, {}, {}]);
  // Nothing changed since the first one.
  assert.deepEqual((await workspace.list()).map((one) => one.label), ["before: Write a worse note"]);
  writeFileSync(file("a"), "worse");
  await call(PreToolUse, { hook_event_name: "PreToolUse", tool_name: "Write" });
  assert.equal((await workspace.list()).length, 2);
  assert.ok(new RegExp(`^(${PreToolUse[0].matcher})$`).test("Edit"));
  await workspace.rollback((await workspace.list())[1]);
  assert.equal(readFileSync(file("a"), "utf8"), "good");
});

test("a checkpoint that fails does not stop the agent", async (t) => {
  const { home, project } = world(t);
  const workspace = await Workspace.open(project, { home });
  await workspace.close();
  const failures = [];
  const { PreToolUse } = hooks(workspace, { onFailure: (error) => failures.push(error) });
  assert.deepEqual(await PreToolUse[0].hooks[0]({ hook_event_name: "PreToolUse" }), {});
  assert.equal(failures[0].code, "connection_lost");
});
