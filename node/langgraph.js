// Checkpointer for LangGraph.js: conversations in Safepoint's threads.
import {
  BaseCheckpointSaver,
  WRITES_IDX_MAP,
  copyCheckpoint,
  getCheckpointId,
} from "@langchain/langgraph-checkpoint";
import { SafepointError, Threads } from "./index.js";

const SERIALIZER = "langgraph-js";
const TASKS = "__pregel_tasks";

/** Saves the states of a graph. `threads` are those of the home or of a workspace. */
export class SafepointSaver extends BaseCheckpointSaver {
  #threads;

  constructor(threads, serde) {
    super(serde);
    this.#threads = threads;
  }

  /** Opens the threads of a home. */
  static async open(options = {}, serde) {
    return new SafepointSaver(await Threads.open(options), serde);
  }

  async #dump(value) {
    const [encoding, bytes] = await this.serde.dumpsTyped(value);
    return { encoding, bytes };
  }

  #load({ encoding, bytes }) {
    return this.serde.loadsTyped(encoding, bytes);
  }

  async #body(state) {
    let why = "it is no state of a graph in JavaScript";
    try {
      const body = await this.#load(state.body);
      if (body?.id !== undefined && body?.channel_versions !== undefined) return body;
    } catch (error) {
      why = error.message;
    }
    throw new SafepointError(
      `cannot read state ${state.id} of thread ${JSON.stringify(state.thread)}: another serializer saved it`,
      { code: "bad_input", kind: "usage", causes: [why] },
    );
  }

  async #tuple(state) {
    const { channel_values: inline = {}, ...body } = await this.#body(state);
    const values = { ...inline };
    for (const [name, channel] of Object.entries(state.channels)) {
      if (channel.value !== null) values[name] = await this.#load(channel.value);
    }
    const pendingWrites = [];
    for (const write of state.writes) {
      pendingWrites.push([write.taskId, write.channel, await this.#load(write.value)]);
    }
    const place = (id) => ({
      configurable: { thread_id: state.thread, checkpoint_ns: state.namespace, checkpoint_id: id },
    });
    const checkpoint = { ...body, channel_values: values };
    if (checkpoint.v < 4 && state.parent !== undefined) {
      await this.#addSends(checkpoint, state);
    }
    const tuple = { config: place(state.id), checkpoint, metadata: state.metadata, pendingWrites };
    if (state.parent !== undefined) tuple.parentConfig = place(state.parent);
    return tuple;
  }

  // Checkpoints before version 4 keep the sends of a step as writes of the one before.
  async #addSends(checkpoint, state) {
    const parent = await this.#threads.get(state.thread, { namespace: state.namespace, id: state.parent });
    const sends = (parent?.writes ?? []).filter((write) => write.channel === TASKS);
    if (sends.length === 0) return;
    checkpoint.channel_values[TASKS] = await Promise.all(sends.map((write) => this.#load(write.value)));
    const versions = Object.values(checkpoint.channel_versions);
    checkpoint.channel_versions[TASKS] =
      versions.length > 0 ? versions.reduce((one, other) => (one > other ? one : other)) : this.getNextVersion(undefined);
  }

  async getTuple(config) {
    const { thread_id: thread, checkpoint_ns: namespace = "" } = config.configurable ?? {};
    if (thread === undefined) return undefined;
    const state = await this.#threads.get(`${thread}`, { namespace, id: getCheckpointId(config) || undefined });
    return state === undefined ? undefined : this.#tuple(state);
  }

  async *list(config, { limit, before, filter } = {}) {
    const given = config.configurable ?? {};
    const metadata = Object.fromEntries(Object.entries(filter ?? {}).filter(([, value]) => value !== undefined));
    const wanted = {
      thread: given.thread_id === undefined ? undefined : `${given.thread_id}`,
      namespace: given.checkpoint_ns,
      id: getCheckpointId(config) || undefined,
      before: before?.configurable?.checkpoint_id,
      metadata,
      limit,
    };
    for await (const state of this.#threads.list(wanted)) {
      let tuple;
      try {
        tuple = await this.#tuple(state);
      } catch (error) {
        // A home has threads of other programs, too.
        if (wanted.thread === undefined && error instanceof SafepointError && error.code === "bad_input") continue;
        throw error;
      }
      yield tuple;
    }
  }

  async put(config, checkpoint, metadata, newVersions = {}) {
    const { thread_id: thread, checkpoint_ns: namespace = "", checkpoint_id: parent } = config.configurable ?? {};
    if (thread === undefined) {
      throw new Error('Missing "thread_id" in config.configurable: it names the conversation to save.');
    }
    const { channel_values: current, ...body } = copyCheckpoint(checkpoint);
    const [channels, values, inline] = [{}, {}, {}];
    for (const [name, version] of Object.entries(checkpoint.channel_versions)) channels[name] = `${version}`;
    for (const name of Object.keys(newVersions)) {
      channels[name] = `${newVersions[name]}`;
      values[name] = name in current ? await this.#dump(current[name]) : null;
    }
    // A value without a version of its own stays in the body.
    for (const [name, value] of Object.entries(current)) {
      if (!(name in channels)) inline[name] = value;
    }
    await this.#threads.put(`${thread}`, {
      namespace,
      id: checkpoint.id,
      parent: parent || undefined,
      runId: typeof metadata?.run_id === "string" ? metadata.run_id : undefined,
      metadata,
      body: await this.#dump({ ...body, channel_values: inline }),
      channels,
      values,
      serializer: SERIALIZER,
    });
    return { configurable: { thread_id: thread, checkpoint_ns: namespace, checkpoint_id: checkpoint.id } };
  }

  async putWrites(config, writes, taskId) {
    const { thread_id: thread, checkpoint_ns: namespace = "", checkpoint_id: state } = config.configurable ?? {};
    if (thread === undefined) throw new Error('Missing "thread_id" in config.configurable.');
    if (state === undefined) throw new Error('Missing "checkpoint_id" in config.configurable.');
    const sent = [];
    for (const [at, [channel, value]] of writes.entries()) {
      sent.push({ index: WRITES_IDX_MAP[channel] ?? at, channel, value: await this.#dump(value) });
    }
    const replace = writes.every(([channel]) => channel in WRITES_IDX_MAP);
    await this.#threads.putWrites(`${thread}`, {
      namespace, state, taskId, writes: sent, replace, serializer: SERIALIZER,
    });
  }

  async deleteThread(thread) {
    await this.#threads.delete(`${thread}`);
  }

  close() {
    return this.#threads.close();
  }
}
