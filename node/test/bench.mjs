// Times of the checkpointer beside LangGraph's SqliteSaver for JavaScript: node bench.mjs FOLDER
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { randomBytes } from "node:crypto";
import { emptyCheckpoint, uuid6 } from "@langchain/langgraph-checkpoint";
import { SqliteSaver } from "@langchain/langgraph-checkpoint-sqlite";
import { SafepointSaver } from "./langgraph.js";

const median = (times) => [...times].sort((one, other) => one - other)[Math.floor(times.length / 2)];
const STATES = 100;

async function measure(saver) {
  const messages = [];
  const times = [];
  let config = { configurable: { thread_id: "t", checkpoint_ns: "" } };
  for (let number = 1; number <= STATES; number++) {
    messages.push({ role: "user", content: `${randomBytes(368).toString("hex")}${"x".repeat(256)}` });
    const versions = { messages: number };
    const checkpoint = {
      ...emptyCheckpoint(), id: uuid6(number), channel_values: { messages: [...messages] }, channel_versions: versions,
    };
    const began = performance.now();
    config = await saver.put(config, checkpoint, { source: "loop", step: number, parents: {} }, versions);
    times.push(performance.now() - began);
  }
  const gets = [];
  for (let turn = 0; turn < 9; turn++) {
    const began = performance.now();
    await saver.getTuple(config);
    gets.push(performance.now() - began);
  }
  return { put: median(times), get: median(gets) };
}

const folder = process.argv[2];
mkdirSync(folder, { recursive: true });
const ours = await SafepointSaver.open({ home: join(folder, "home") });
const rows = { "SafepointSaver, JavaScript": await measure(ours) };
await ours.close();
rows["SqliteSaver, JavaScript"] = await measure(SqliteSaver.fromConnString(join(folder, "a.db")));
console.log(JSON.stringify(rows));
