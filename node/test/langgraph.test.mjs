// The saver for LangGraph.js.
import assert from "node:assert/strict";
import { test } from "node:test";
import { emptyCheckpoint } from "@langchain/langgraph-checkpoint";
import { SafepointSaver } from "../langgraph.js";
import { world } from "./world.mjs";

const checkpoint = (id, values, versions) => ({
  ...emptyCheckpoint(),
  id,
  channel_values: values,
  channel_versions: versions,
});

test("values of unchanged channels come from earlier states", async (t) => {
  const { home } = world(t);
  const saver = await SafepointSaver.open({ home });
  t.after(() => saver.close());
  const config = { configurable: { thread_id: "t", checkpoint_ns: "" } };
  const first = await saver.put(config, checkpoint("1", { a: [1], b: "x" }, { a: 1, b: 1 }), { source: "input", step: -1, parents: {} }, { a: 1, b: 1 });
  await saver.put(first, checkpoint("2", { a: [1, 2], b: "x" }, { a: 2, b: 1 }), { source: "loop", step: 0, parents: {} }, { a: 2 });
  const found = await saver.getTuple(config);
  assert.deepEqual(found.checkpoint.channel_values, { a: [1, 2], b: "x" });
  assert.equal(found.parentConfig.configurable.checkpoint_id, "1");
  const listed = [];
  for await (const tuple of saver.list(config, { filter: { source: "input" } })) listed.push(tuple.checkpoint.id);
  assert.deepEqual(listed, ["1"]);
});

test("threads of another serializer are refused", async (t) => {
  const { home } = world(t);
  const saver = await SafepointSaver.open({ home });
  t.after(() => saver.close());
  const { Threads } = await import("../index.js");
  const threads = await Threads.open({ home });
  t.after(() => threads.close());
  await threads.put("t", { id: "s", body: { encoding: "msgpack", bytes: new Uint8Array() }, serializer: "langgraph-py" });
  const config = { configurable: { thread_id: "t", checkpoint_ns: "" } };
  await assert.rejects(saver.put(config, checkpoint("1", {}, {}), {}, {}), /serializer/);
});
