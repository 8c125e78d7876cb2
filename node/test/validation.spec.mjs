// LangGraph's own suite for checkpointers, run by vitest (.ci/node).
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { validate } from "@langchain/langgraph-checkpoint-validation";
import { SafepointSaver } from "../langgraph.js";

const homes = new Map();

validate({
  checkpointerName: "safepoint",
  async createCheckpointer() {
    const home = mkdtempSync(join(tmpdir(), "safepoint-validation-"));
    const saver = await SafepointSaver.open({ home });
    homes.set(saver, home);
    return saver;
  },
  async destroyCheckpointer(saver) {
    await saver.close();
    rmSync(homes.get(saver), { recursive: true, force: true });
  },
});
