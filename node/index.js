// Safepoint for Node: a thin client of the program `safepoint`.
import { resolve } from "node:path";
import { Attachments, Connection, SafepointError } from "./connection.js";

export { Connection, SafepointError };

const idOf = (checkpoint) => (typeof checkpoint === "string" ? checkpoint : checkpoint.id);

async function run(connection, args) {
  const { result } = await connection.call("command", { args });
  if (result.error !== null && result.exit_code !== 0 && result.data === null) {
    throw new SafepointError(result.error.message, result.error);
  }
  return result.data;
}

/** A failure to go back, after the failure that caused it. */
export class RollbackFailed extends SafepointError {
  constructor(failure, cause) {
    super(`cannot roll back: ${failure.message}`, failure);
    this.name = "RollbackFailed";
    this.cause = cause;
  }
}

/** A folder with checkpoints. */
export class Workspace {
  #connection;

  constructor(connection, workspace) {
    this.#connection = connection;
    this.id = workspace.id;
    this.root = workspace.root;
    this.threads = new Threads(connection, workspace.id);
    this.attempts = new Attempts(this);
  }

  /** Opens the workspace around a folder; registers the folder if there is none. */
  static async open(folder = ".", options = {}) {
    const connection = await Connection.open(options);
    try {
      const { result } = await connection.call("open", { path: resolve(folder) });
      return new Workspace(connection, result.workspace);
    } catch (error) {
      await connection.close();
      throw error;
    }
  }

  get connection() {
    return this.#connection;
  }

  /** Runs a command line in the workspace; the result is the data of `--json`. */
  command(...args) {
    return run(this.#connection, ["-C", this.root, ...args]);
  }

  async create(label, { onlyIfChanged = false, pinned = false } = {}) {
    const args = ["create"];
    if (label !== undefined) args.push(`--label=${label}`);
    if (onlyIfChanged) args.push("--if-changed");
    if (pinned) args.push("--pin");
    const data = await this.command(...args);
    return data.checkpoint;
  }

  async list({ limit } = {}) {
    const data = await this.command("list", ...(limit === undefined ? [] : [`--limit=${limit}`]));
    return data.checkpoints;
  }

  show(checkpoint) {
    return this.command("show", idOf(checkpoint));
  }

  diff(...checkpoints) {
    return this.command("diff", ...checkpoints.map(idOf));
  }

  status() {
    return this.command("status");
  }

  async rollback(checkpoint, { dryRun = false, paths = [], parts = [] } = {}) {
    const args = ["--yes", "rollback", idOf(checkpoint)];
    if (dryRun) args.push("--dry-run");
    for (const path of paths) args.push(`--path=${path}`);
    for (const part of parts) args.push(`--part=${part}`);
    return (await this.command(...args)).rollback;
  }

  undo(options) {
    return this.#again("undo", options);
  }

  redo(options) {
    return this.#again("redo", options);
  }

  // Without a terminal, `--yes` is what allows to replace later changes.
  async #again(verb, { dryRun = false, replaceChanges = false } = {}) {
    const args = [...(replaceChanges ? ["--yes"] : []), verb, ...(dryRun ? ["--dry-run"] : [])];
    return (await this.command(...args)).rollback;
  }

  /** Pins a checkpoint, so that it is never pruned, or unpins it. */
  async pin(checkpoint, pinned = true) {
    await this.command(pinned ? "pin" : "unpin", idOf(checkpoint));
  }

  /**
   * Runs work between a checkpoint and its end. If it throws or rejects, the workspace is as it was before, and the
   * error is thrown on; `reject` does so without an error. If this process is killed, the checkpoint stays pinned
   * under the name "before LABEL".
   */
  async transaction(label, work) {
    const before = await this.create(`before ${label}`, { pinned: true });
    let rejected;
    const transaction = { checkpoint: before, reject: (reason = "rejected") => (rejected = reason) };
    let value;
    try {
      value = await work(transaction);
    } catch (cause) {
      await this.#back(before, cause);
      await this.#release(before);
      throw cause;
    }
    if (rejected !== undefined) await this.#back(before, rejected);
    await this.#release(before);
    return value;
  }

  // The result of the work does not depend on it.
  async #release(checkpoint) {
    try {
      await this.pin(checkpoint, false);
    } catch (error) {
      if (!(error instanceof SafepointError)) throw error;
    }
  }

  async #back(checkpoint, cause) {
    try {
      await this.rollback(checkpoint);
    } catch (failure) {
      throw new RollbackFailed(failure, cause);
    }
  }

  close() {
    return this.#connection.close();
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }
}

const nameOf = (attempt) => (typeof attempt === "object" ? String(attempt.number) : String(attempt));

/** Attempts of a workspace. Their commands run with `safepoint attempt exec`. */
export class Attempts {
  #workspace;

  constructor(workspace) {
    this.#workspace = workspace;
  }

  async #command(...args) {
    return this.#workspace.command("attempt", ...args);
  }

  async start(name, { copy = false } = {}) {
    const args = [...(copy ? ["--copy"] : []), ...(name === undefined ? [] : [name])];
    return (await this.#command("start", ...args)).attempt;
  }

  /** The open attempts, oldest first; with `all` also those that were kept or dropped. */
  async list({ all = false } = {}) {
    return (await this.#command("list", ...(all ? ["--all"] : []))).attempts;
  }

  async show(attempt) {
    return (await this.#command("show", nameOf(attempt))).attempt;
  }

  /** The open attempts side by side; `best` is a metric. */
  async compare({ best, lowest = false } = {}) {
    const args = [...(best === undefined ? [] : [`--best=${best}`]), ...(lowest ? ["--lowest"] : [])];
    const { attempts, best: chosen } = await this.#command("compare", ...args);
    return { attempts, best: chosen };
  }

  /** Changes of an attempt since its start, or between the results of two. */
  async diff(...attempts) {
    return (await this.#command("diff", ...attempts.map(nameOf))).changes;
  }

  /** Shows what `keep` would do; the attempt is captured. */
  previewKeep(attempt, { others = "drop" } = {}) {
    return this.#command("keep", nameOf(attempt), `--others=${others}`, "--dry-run");
  }

  /** Takes the result of an attempt over into the workspace, all of it or nothing. */
  keep(attempt, { others = "drop" } = {}) {
    return this.#command("keep", nameOf(attempt), `--others=${others}`);
  }

  /** Closes an attempt; its last state stays as a checkpoint. */
  async drop(attempt, { deleteCommits = false } = {}) {
    const args = [nameOf(attempt), ...(deleteCommits ? ["--delete-commits"] : [])];
    return (await this.#command("drop", ...args)).attempts[0];
  }
}

/** Threads of a workspace, or of the home. */
export class Threads {
  #connection;
  #workspace;

  constructor(connection, workspace = null) {
    this.#connection = connection;
    this.#workspace = workspace;
  }

  /** Opens the threads of the home, without a workspace. */
  static async open(options = {}) {
    return new Threads(await Connection.open(options));
  }

  async #call(method, params, attachments) {
    const given = { workspace: this.#workspace, ...params };
    return this.#connection.call(`threads.${method}`, given, attachments?.parts ?? []);
  }

  /** Saves a state; with `capture` also a checkpoint of the files, both or neither. */
  async put(thread, state, { capture } = {}) {
    const attachments = new Attachments();
    const { namespace, id, parent, runId, metadata, body, channels, values = {}, files, serializer, ttlMs } = state;
    const attached = {};
    for (const [name, value] of Object.entries(values)) {
      attached[name] = value === null ? null : attachments.add(value);
    }
    const sent = {
      namespace, id, parent, run_id: runId, metadata, channels, files, serializer, ttl_ms: ttlMs,
      body: attachments.add(body),
      values: attached,
    };
    const given = { thread, state: sent };
    if (capture) given.capture = { label: capture.label, only_if_changed: capture.onlyIfChanged ?? false };
    return (await this.#call("put", given, attachments)).result;
  }

  async putWrites(thread, { namespace, state, taskId, taskPath, writes, replace, serializer }) {
    const attachments = new Attachments();
    const sent = writes.map(({ index, channel, value }) => ({ index, channel, value: attachments.add(value) }));
    const given = { thread, namespace, state, task_id: taskId, task_path: taskPath, writes: sent, replace, serializer };
    await this.#call("put_writes", given, attachments);
  }

  async get(thread, { namespace, id } = {}) {
    const { result, bytes } = await this.#call("get", { thread, namespace, id });
    return result === null ? undefined : read(result, bytes);
  }

  /** One page of states, largest id first. */
  async page(wanted = {}) {
    const { result, bytes } = await this.#call("list", wanted);
    return { states: result.states.map((state) => read(state, bytes)), next: result.next };
  }

  /** All states, page by page. */
  async *list({ limit = Infinity, ...wanted } = {}) {
    let after;
    for (let left = limit; left > 0; ) {
      const { states, next } = await this.page({ ...wanted, limit: Math.min(left, 50), after });
      yield* states;
      left -= states.length;
      if (next === null) return;
      after = next;
    }
  }

  async threads() {
    return (await this.#call("threads", {})).result;
  }

  async delete(thread) {
    return (await this.#call("delete", { thread })).result.deleted;
  }

  async deleteRuns(runs) {
    return (await this.#call("delete_runs", { runs })).result.removed;
  }

  async copy(from, to) {
    await this.#call("copy", { from, to });
  }

  async prune(thread, { last, hiddenAncestors } = {}) {
    return (await this.#call("prune", { thread, last, hidden_ancestors: hiddenAncestors })).result.removed;
  }

  /** Rolls the thread and the files back to a state. */
  async rollback(thread, id, { namespace, dryRun } = {}) {
    return (await this.#call("rollback", { thread, namespace, id, dry_run: dryRun })).result;
  }

  close() {
    return this.#connection.close();
  }
}

function read(state, bytes) {
  const value = (found) => {
    if (found === null) return null;
    const [from, length] = found.bytes;
    return { encoding: found.encoding, bytes: new Uint8Array(bytes.subarray(from, from + length)) };
  };
  const channels = {};
  for (const [name, channel] of Object.entries(state.channels)) {
    channels[name] = { version: channel.version, value: value(channel.value) };
  }
  return {
    thread: state.thread,
    namespace: state.namespace,
    id: state.id,
    parent: state.parent ?? undefined,
    runId: state.run_id ?? undefined,
    metadata: state.metadata,
    body: value(state.body),
    channels,
    writes: state.writes.map((write) => ({
      taskId: write.task_id,
      index: write.index,
      channel: write.channel,
      value: value(write.value),
      taskPath: write.task_path,
    })),
    files: state.files ?? undefined,
    filesPruned: state.files_pruned,
    hidden: state.hidden,
    isHead: state.is_head,
    createdAt: state.created_at,
  };
}
