// Folders and programs of the tests. The real program is used: SAFEPOINT_BIN, or the debug build.
import { mkdtempSync, mkdirSync, rmSync, existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const built = join(dirname(fileURLToPath(import.meta.url)), "../../target/debug/safepoint");
process.env.SAFEPOINT_BIN ??= built;
if (!existsSync(process.env.SAFEPOINT_BIN)) throw new Error(`no program at ${process.env.SAFEPOINT_BIN}`);

export function world(test) {
  const folder = mkdtempSync(join(tmpdir(), "safepoint-node-"));
  const [home, project] = [join(folder, "home"), join(folder, "project")];
  mkdirSync(project);
  test.after(() => rmSync(folder, { recursive: true, force: true }));
  return { folder, home, project, file: (name) => join(project, name) };
}

export const text = (value) => ({ encoding: "text", bytes: new TextEncoder().encode(value) });
export const read = (value) => new TextDecoder().decode(value.bytes);
export const alive = (pid) => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};
export const until = async (holds, what) => {
  for (let tries = 0; tries < 500; tries++) {
    if (holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`never: ${what}`);
};
