// The client against the real program: verbs, transactions, threads, and everything that can end or break a connection.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync, existsSync, chmodSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { Connection, SafepointError, Threads, Workspace } from "../index.js";
import { alive, read, text, until, world } from "./world.mjs";

const state = (id, parent, content) => ({
  id,
  parent,
  body: text(`body of ${id}`),
  channels: { messages: id },
  values: { messages: text(content) },
  metadata: { source: "loop" },
});

test("a rollback and its undo restore files", async (t) => {
  const { home, project, file } = world(t);
  const workspace = await Workspace.open(project, { home });
  t.after(() => workspace.close());
  writeFileSync(file("a"), "one");
  const first = await workspace.create("first");
  assert.equal(first.label, "first");
  writeFileSync(file("a"), "two");
  assert.equal((await workspace.status()).changes.length, 1);
  const dry = await workspace.rollback(first, { dryRun: true });
  assert.deepEqual([dry.restored_files_count, readFileSync(file("a"), "utf8")], [1, "two"]);
  await workspace.rollback(first);
  assert.equal(readFileSync(file("a"), "utf8"), "one");
  await workspace.undo();
  assert.equal(readFileSync(file("a"), "utf8"), "two");
  await workspace.redo();
  assert.equal(readFileSync(file("a"), "utf8"), "one");
  assert.ok((await workspace.list()).some((checkpoint) => checkpoint.id === first.id));
});

test("a transaction that throws leaves the files as before and throws on", async (t) => {
  const { home, project, file } = world(t);
  const workspace = await Workspace.open(project, { home });
  t.after(() => workspace.close());
  writeFileSync(file("a"), "before");
  const error = new Error("agent failed");
  const failing = workspace.transaction("work", async () => {
    writeFileSync(file("a"), "during");
    writeFileSync(file("b"), "new");
    throw error;
  });
  await assert.rejects(failing, (thrown) => thrown === error);
  assert.deepEqual([readFileSync(file("a"), "utf8"), existsSync(file("b"))], ["before", false]);
  const value = await workspace.transaction("good", async () => {
    writeFileSync(file("a"), "after");
    return 7;
  });
  assert.deepEqual([value, readFileSync(file("a"), "utf8")], [7, "after"]);
  await workspace.transaction("rejected", async (transaction) => {
    writeFileSync(file("a"), "bad");
    transaction.reject("tests fail");
  });
  assert.equal(readFileSync(file("a"), "utf8"), "after");
  assert.ok((await workspace.list()).every((one) => !one.pinned));
});

test("a host that is killed in a transaction leaves a pinned checkpoint with its name", async (t) => {
  const { home, project, file } = world(t);
  writeFileSync(file("a"), "before");
  const script = `
    import { Workspace } from ${JSON.stringify(pathToFileURL(join(import.meta.dirname, "../index.js")).href)};
    import { writeFileSync } from "node:fs";
    const workspace = await Workspace.open(${JSON.stringify(project)}, { home: ${JSON.stringify(home)} });
    await workspace.transaction("refactor", async () => {
      writeFileSync(${JSON.stringify(file("a"))}, "half");
      process.kill(process.pid, "SIGKILL");
      await new Promise(() => setInterval(() => {}, 1000));
    });`;
  const host = spawn(process.execPath, ["--input-type=module", "-e", script]);
  await new Promise((resolve) => host.on("close", resolve));
  assert.equal(readFileSync(file("a"), "utf8"), "half");
  const workspace = await Workspace.open(project, { home });
  t.after(() => workspace.close());
  const [left] = (await workspace.list()).filter((one) => one.pinned);
  assert.equal(left.label, "before refactor");
  await workspace.rollback(left);
  assert.equal(readFileSync(file("a"), "utf8"), "before");
});

test("an undo does not replace later changes unless asked to", async (t) => {
  const { home, project, file } = world(t);
  const workspace = await Workspace.open(project, { home });
  t.after(() => workspace.close());
  writeFileSync(file("a"), "one");
  const first = await workspace.create("first");
  writeFileSync(file("a"), "two");
  await workspace.rollback(first);
  writeFileSync(file("a"), "three");
  await assert.rejects(workspace.undo(), (error) => error instanceof SafepointError);
  assert.equal(readFileSync(file("a"), "utf8"), "three");
  await workspace.undo({ replaceChanges: true });
  assert.equal(readFileSync(file("a"), "utf8"), "two");
});

test("every code of the client is documented", () => {
  const source = readFileSync(join(import.meta.dirname, "../connection.js"), "utf8");
  const codes = [...source.matchAll(/code: "([a-z_]+)"|broken\([^;]*?, "([a-z_]+)"\)/g)].map((found) => found[1] ?? found[2]);
  assert.ok(codes.length > 6);
  const pages = [process.env.SAFEPOINT_DOCS ?? join(import.meta.dirname, "../../docs")];
  const text = pages.flatMap((folder) => ["errors.md", "node.md"].map((name) => readFileSync(join(folder, name), "utf8"))).join();
  for (const code of codes) assert.ok(text.includes("`" + code + "`"), code);
});

test("a state with files goes back with them", async (t) => {
  const { home, project, file } = world(t);
  const workspace = await Workspace.open(project, { home });
  t.after(() => workspace.close());
  const { threads } = workspace;
  for (const [id, parent] of [["s1", undefined], ["s2", "s1"]]) {
    writeFileSync(file("a"), id);
    const saved = await threads.put("t", state(id, parent, `messages of ${id}`), { capture: { label: id } });
    assert.equal(saved.checkpoint.label, id);
  }
  const done = await threads.rollback("t", "s1");
  assert.deepEqual(done.threads[0].heads, [{ namespace: "", from: "s2", to: "s1" }]);
  const head = await threads.get("t");
  assert.deepEqual([head.id, read(head.channels.messages.value)], ["s1", "messages of s1"]);
  assert.equal(readFileSync(file("a"), "utf8"), "s1");
  await workspace.undo();
  assert.deepEqual([(await threads.get("t")).id, readFileSync(file("a"), "utf8")], ["s2", "s2"]);
});

test("threads of a home save, list, copy and delete", async (t) => {
  const { home } = world(t);
  const threads = await Threads.open({ home });
  t.after(() => threads.close());
  const long = new Uint8Array(300_000).map((_, at) => (at * 31 + (at >> 7)) & 255);
  await Promise.all(Array.from({ length: 120 }, (_, at) => threads.put("t", state(`s${1000 + at}`, undefined, `${at}`))));
  await threads.put("t", { ...state("z", "s1000", ""), values: { messages: { encoding: "bytes", bytes: long } } });
  assert.deepEqual((await threads.get("t")).channels.messages.value.bytes, long);
  const write = { index: 0, channel: "messages", value: text("pending") };
  await threads.putWrites("t", { state: "z", taskId: "task", writes: [write] });
  assert.equal(read((await threads.get("t", { id: "z" })).writes[0].value), "pending");
  const ids = [];
  for await (const found of threads.list({ thread: "t" })) ids.push(found.id);
  assert.equal(new Set(ids).size, 121);
  await threads.copy("t", "copy");
  assert.equal(await threads.prune("copy", { last: 1 }), 120);
  assert.equal(await threads.delete("t"), true);
  assert.equal(await threads.get("t"), undefined);
  assert.deepEqual((await threads.threads()).map((thread) => thread.thread), ["copy"]);
});

test("a failure has a code, a kind and hints", async (t) => {
  const { home, project } = world(t);
  const workspace = await Workspace.open(project, { home });
  t.after(() => workspace.close());
  const fails = async (promise, code, kind) => {
    const error = await promise.then(() => assert.fail("no error"), (error) => error);
    assert.ok(error instanceof SafepointError, String(error));
    assert.deepEqual([error.code, error.kind], [code, kind], error.message);
  };
  await fails(workspace.rollback("nothing"), "no_checkpoint", "not_found");
  await fails(workspace.undo(), "nothing_to_undo", "not_found");
  await fails(workspace.threads.rollback("none", "s"), "no_thread", "not_found");
  await fails(workspace.threads.put("a\0b", state("s", undefined, "")), "bad_input", "usage");
  await fails(workspace.threads.put("t", { ...state("s", undefined, ""), body: { encoding: "x".repeat(600), bytes: new Uint8Array() } }), "bad_input", "usage");
  await fails(workspace.command("run", "--", "ls"), "usage", "usage");
  await fails(workspace.command("no-such-command"), "usage", "usage");
  await fails(workspace.connection.call("threads.put", { odd: 1 }), "usage", "usage");
  await fails(workspace.connection.call("odd"), "protocol", "usage");
  await workspace.create("still works");
});

test("a killed child rejects its calls, and what was answered is there", async (t) => {
  const { home } = world(t);
  for (let round = 0; round < 5; round++) {
    const threads = await Threads.open({ home });
    const connection = await Connection.open({ home });
    t.after(() => connection.close());
    const answered = [];
    const saver = new Threads(connection);
    const saves = Array.from({ length: 40 }, (_, at) => {
      const id = `r${round}-${1000 + at}`;
      return saver.put("t", state(id, undefined, "x".repeat(5000 + at))).then(() => answered.push(id));
    });
    await new Promise((resolve) => setTimeout(resolve, 5 + round * 10));
    process.kill(connection.pid, "SIGKILL");
    const results = await Promise.allSettled(saves);
    for (const { reason } of results.filter(({ status }) => status === "rejected")) {
      assert.equal(reason.code, "connection_lost");
    }
    for (const id of answered) assert.ok(await threads.get("t", { id }), `${id} was answered`);
    await assert.rejects(saver.get("t"), { code: "connection_lost" });
    await threads.close();
  }
});

test("the child ends with its host", async (t) => {
  const { folder, home } = world(t);
  const client = pathToFileURL(join(import.meta.dirname ?? new URL(".", import.meta.url).pathname, "../index.js"));
  const script = join(folder, "host.mjs");
  writeFileSync(script, `
    import { Threads, Connection } from "${client}";
    const connection = await Connection.open({ home: ${JSON.stringify(home)} });
    console.log(connection.pid);
    const threads = new Threads(connection);
    for (let at = 0; ; at++) {
      await threads.put("t", { id: "s" + at, body: { encoding: "e", bytes: new Uint8Array(3000) } });
      console.log("saved", at);
    }
  `);
  const host = spawn(process.execPath, [script], { stdio: ["ignore", "pipe", "inherit"] });
  let told = "";
  host.stdout.on("data", (data) => (told += data));
  await until(() => told.includes("saved 3"), "four saves");
  host.kill("SIGKILL");
  const child = Number(told.split("\n")[0]);
  await until(() => !alive(child), "the end of the child");
  const threads = await Threads.open({ home });
  t.after(() => threads.close());
  const last = Math.max(...told.split("\n").filter((line) => /^saved \d+$/.test(line)).map((line) => Number(line.slice(6))));
  assert.ok(await threads.get("t", { id: `s${last}` }));
});

test("an idle connection does not keep the host alive", async (t) => {
  const { folder, home } = world(t);
  const client = pathToFileURL(new URL("../index.js", import.meta.url).pathname);
  const script = join(folder, "idle.mjs");
  writeFileSync(script, `
    import { Threads } from "${client}";
    const threads = await Threads.open({ home: ${JSON.stringify(home)} });
    await threads.put("t", { id: "s", body: { encoding: "e", bytes: new Uint8Array() } });
  `);
  const host = spawn(process.execPath, [script], { stdio: "inherit" });
  const code = await new Promise((resolve) => host.on("close", resolve));
  assert.equal(code, 0);
});

test("another version of the protocol is refused", async (t) => {
  const { folder, home } = world(t);
  const connection = await Connection.open({ home });
  await assert.rejects(connection.call("initialize", { protocol: 2, client: "future" }), { code: "version_skew" });
  await connection.close();
  const old = join(folder, "old");
  writeFileSync(old, `#!/usr/bin/env node
    process.stdin.once("data", () => {
      const text = Buffer.from(JSON.stringify({ jsonrpc: "2.0", id: 1, result: { protocol: 9, version: "9.0.0" } }));
      const head = Buffer.alloc(8);
      head.writeUInt32BE(text.length + 4, 0);
      head.writeUInt32BE(text.length, 4);
      process.stdout.write(Buffer.concat([head, text]));
    });
  `);
  chmodSync(old, 0o755);
  await assert.rejects(Connection.open({ home, program: old }), { code: "version_skew" });
  await assert.rejects(Connection.open({ home, program: join(folder, "missing") }), { code: "not_started" });
  await assert.rejects(Connection.open({ home, program: "/bin/echo" }), { code: "connection_lost" });
});

/** Sends raw bytes to a child and returns its answers and its exit code. */
async function raw(home, parts, { end = true } = {}) {
  const child = spawn(process.env.SAFEPOINT_BIN, ["--home", home, "rpc"], { stdio: ["pipe", "pipe", "pipe"] });
  let out = Buffer.alloc(0);
  let errors = "";
  child.stdout.on("data", (data) => (out = Buffer.concat([out, data])));
  child.stderr.on("data", (data) => (errors += data));
  child.stdin.on("error", () => {});
  for (const part of parts) child.stdin.write(part);
  if (end) child.stdin.end();
  const code = await new Promise((resolve) => child.on("close", resolve));
  const answers = [];
  while (out.length >= 8) {
    const [whole, length] = [out.readUInt32BE(0), out.readUInt32BE(4)];
    answers.push(JSON.parse(out.subarray(8, 8 + length)));
    out = out.subarray(whole + 4);
  }
  assert.ok(!errors.includes("panicked"), errors);
  return { answers, code };
}

function frame(message, bytes = Buffer.alloc(0)) {
  const json = Buffer.isBuffer(message) ? message : Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(8);
  head.writeUInt32BE(json.length + bytes.length + 4, 0);
  head.writeUInt32BE(json.length, 4);
  return Buffer.concat([head, json, bytes]);
}

const hello = frame({ jsonrpc: "2.0", id: 1, method: "initialize", params: { protocol: 1, client: "raw" } });
const ping = frame({ jsonrpc: "2.0", id: 2, method: "ping" });

test("torn, oversized and unknown frames are errors, and later frames are answered", async (t) => {
  const { home } = world(t);
  for (const length of [1, 4, 7, 8, 9, hello.length - 1]) {
    const { answers, code } = await raw(home, [hello.subarray(0, length)]);
    assert.deepEqual([answers.length, answers[0].error.code, code], [1, -32700, 0], `torn after ${length}`);
  }
  const oversized = Buffer.alloc(8);
  oversized.writeUInt32BE(0xffffffff, 0);
  assert.equal((await raw(home, [hello, oversized])).answers[1].error.code, -32700);
  const misfit = Buffer.from([0, 0, 0, 6, 0, 0, 0, 9, 1, 2]);
  const codes = async (...frames) => (await raw(home, [hello, ...frames, ping])).answers.map(({ error }) => error?.code ?? 0);
  assert.deepEqual(await codes(misfit), [0, -32600, 0]);
  for (const [message, code] of [
    [Buffer.from("nonsense"), -32700],
    [Buffer.from([0xff, 0xfe]), -32700],
    [Buffer.from("[".repeat(100_000)), -32700],
    [[], -32600],
    [null, -32600],
    ["text", -32600],
    [{ jsonrpc: "2.0", id: 5 }, -32600],
    [{ jsonrpc: "1.0", id: 5, method: "ping" }, -32600],
    [{ jsonrpc: "2.0", id: { a: 1 }, method: "ping" }, -32600],
    [{ jsonrpc: "2.0", id: 5, method: "unknown" }, -32601],
    [{ jsonrpc: "2.0", id: 5, method: "threads.unknown" }, -32601],
    [{ jsonrpc: "2.0", id: 5, method: "threads.put", params: [] }, -32000],
    [{ jsonrpc: "2.0", id: 5, method: "threads.get", params: { thread: "t", workspace: "../x" } }, -32000],
    [{ jsonrpc: "2.0", id: 5, method: "command", params: { args: ["rpc"] } }, -32000],
    [{ jsonrpc: "2.0", id: 5, method: "command", params: { args: ["--help"] } }, -32000],
    [{ jsonrpc: "2.0", id: 5, method: "threads.put", params: { thread: "t", state: { id: "s", body: { encoding: "e", bytes: [0, 9] } } } }, -32000],
    [{ jsonrpc: "2.0", id: 5, method: "threads.put", params: { thread: "t", state: { id: "s", body: { encoding: "e", bytes: [18446744073709551615n.toString(), 1] } } } }, -32000],
  ]) {
    assert.deepEqual(await codes(frame(message)), [0, code, 0], JSON.stringify(message)?.slice(0, 90));
  }
  const early = await raw(home, [ping]);
  assert.equal(early.answers[0].error.code, -32001);
});

test("an attempt is compared, previewed, kept and undone, and the others are dropped", async (t) => {
  const { home, project, file } = world(t);
  const workspace = await Workspace.open(project, { home });
  t.after(() => workspace.close());
  writeFileSync(file("a"), "one\n");
  const { attempts } = workspace;
  const made = await attempts.start("refactor", { copy: true });
  await attempts.start("other", { copy: true });
  const program = ["--home", home, "attempt", "exec", "refactor", "--", "sh", "-c"];
  const line = `cd '${join(made.room, "tree")}'/*; echo two > a; echo new > b`;
  const ran = spawnSync(process.env.SAFEPOINT_BIN, [...program, line], { cwd: project, encoding: "utf8" });
  assert.equal(ran.status, 0, ran.stderr);
  assert.equal(readFileSync(file("a"), "utf8"), "one\n");
  const table = await attempts.compare();
  assert.deepEqual(table.attempts.map(({ name, lines }) => [name, lines?.added]), [["refactor", 2], ["other", undefined]]);
  assert.deepEqual((await attempts.diff("refactor")).map(({ path }) => path), ["a", "b"]);
  const preview = await attempts.previewKeep("refactor");
  assert.deepEqual([preview.dropped, existsSync(file("b"))], [["other"], false]);
  assert.equal((await attempts.list()).length, 2);
  const kept = await attempts.keep(made);
  assert.deepEqual([kept.attempt.state, kept.dropped, readFileSync(file("a"), "utf8")], ["kept", ["other"], "two\n"]);
  assert.deepEqual([await attempts.list(), (await attempts.list({ all: true })).length], [[], 2]);
  await workspace.undo();
  assert.equal(readFileSync(file("a"), "utf8"), "one\n");
  const third = await attempts.start();
  assert.equal((await attempts.drop(third)).state, "dropped");
  await assert.rejects(attempts.drop(third.number), { code: "attempt_closed" });
  await assert.rejects(attempts.show("no-such"), { kind: "not_found" });
});
