// The types as a program uses them; compiled by .ci/node.
import { SafepointError, Threads, Workspace, type State } from "../index.js";
import { SafepointSaver } from "../langgraph.js";

export async function uses(): Promise<State | undefined> {
  const workspace = await Workspace.open("shop", { home: "home" });
  const checkpoint = await workspace.create("label", { onlyIfChanged: true });
  await workspace.rollback(checkpoint, { dryRun: true, paths: ["src"] });
  const value: number = await workspace.transaction("work", async (transaction) => {
    transaction.reject("no");
    return 7;
  });
  for await (const state of workspace.threads.list({ thread: "t", limit: value })) {
    console.log(state.channels["messages"]?.value?.bytes.length);
  }
  const attempt = await workspace.attempts.start("refactor", { copy: true });
  const lines: number | undefined = (await workspace.attempts.compare()).attempts[0]?.lines?.added;
  const kept = await workspace.attempts.keep(attempt, { others: "open" });
  console.log(lines, kept.rollback?.id, (await workspace.attempts.drop(attempt.number)).state);
  const saver = new SafepointSaver(workspace.threads);
  await saver.deleteThread("t");
  const threads: Threads = await Threads.open();
  try {
    return await threads.get("t");
  } catch (error) {
    if (error instanceof SafepointError && error.kind === "not_found") return undefined;
    throw error;
  }
}

import { hooks } from "../claude.js";

export const options = (workspace: Workspace) => ({
  hooks: hooks(workspace, { onFailure: (error: Error) => console.log(error.message) }),
});
