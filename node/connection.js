// Connection to a child `safepoint rpc`: requests and answers in frames with attached bytes (docs/rpc.md).
import { spawn } from "node:child_process";
import { Buffer } from "node:buffer";
import { findProgram } from "./program.js";

const PROTOCOL = 1;
const FRAME_BYTES_MAX = 320 << 20;

/** Failure of a call. */
export class SafepointError extends Error {
  constructor(message, { code = "failed", kind = "failed", hints = [], causes = [] } = {}) {
    super(message);
    this.name = "SafepointError";
    this.code = code;
    this.kind = kind;
    this.hints = hints;
    this.causes = causes;
  }
}

const broken = (message, code) => new SafepointError(message, { code, kind: "failed" });

/** One child process, shared by all handles of a home. */
export class Connection {
  #child;
  #waiting = new Map();
  #parts = [];
  #length = 0;
  #last = 0;
  #dead = null;
  #ended;
  #stderr = "";

  constructor({ home, program } = {}) {
    const command = findProgram(program);
    const args = home === undefined ? ["rpc"] : ["--home", home, "rpc"];
    // The end of the host closes the child's input, and the child ends with it.
    this.#child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"] });
    this.#child.stdout.on("data", (data) => this.#receive(data));
    this.#child.stderr.on("data", (data) => (this.#stderr = (this.#stderr + data).slice(-4096)));
    this.#child.stdin.on("error", () => {});
    this.#ended = new Promise((resolve) => {
      this.#child.on("error", (error) => {
        this.#fail(broken(`cannot start ${command}: ${error.message}`, "not_started"));
        resolve();
      });
      this.#child.on("close", (code, signal) => {
        const how = signal ?? `exit code ${code}`;
        const told = this.#stderr.trim() === "" ? "" : `: ${this.#stderr.trim()}`;
        this.#fail(broken(`safepoint ended (${how})${told}`, "connection_lost"));
        resolve();
      });
    });
    this.#hold(false);
  }

  /** Starts a child and checks that it speaks this protocol. */
  static async open(options) {
    const connection = new Connection(options);
    try {
      const { result } = await connection.call("initialize", { protocol: PROTOCOL, client: "node" });
      if (result.protocol !== PROTOCOL) {
        throw broken(`safepoint ${result.version} speaks protocol ${result.protocol}`, "version_skew");
      }
      connection.version = result.version;
      connection.home = result.home;
      return connection;
    } catch (error) {
      await connection.close();
      throw error;
    }
  }

  get pid() {
    return this.#child.pid;
  }

  /** Runs a method. `bytes` are attached; the answer is `{ result, bytes }`. */
  call(method, params = {}, bytes = []) {
    if (this.#dead !== null) return Promise.reject(this.#dead);
    const id = ++this.#last;
    let text;
    try {
      text = Buffer.from(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    } catch (error) {
      return Promise.reject(new SafepointError(error.message, { code: "bad_input", kind: "usage" }));
    }
    const attached = bytes.reduce((sum, part) => sum + part.length, 0);
    if (text.length + attached + 4 > FRAME_BYTES_MAX) {
      return Promise.reject(new SafepointError("the request is too long", { code: "bad_input", kind: "usage" }));
    }
    const head = Buffer.alloc(8);
    head.writeUInt32BE(text.length + attached + 4, 0);
    head.writeUInt32BE(text.length, 4);
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#hold(true);
      this.#child.stdin.cork();
      this.#child.stdin.write(head);
      this.#child.stdin.write(text);
      for (const part of bytes) this.#child.stdin.write(part);
      this.#child.stdin.uncork();
    });
  }

  /** Ends the child after the calls that were begun. */
  async close() {
    this.#hold(true);
    this.#child.stdin.end();
    await this.#ended;
  }

  // An idle connection does not keep the host alive; one with calls does.
  #hold(busy) {
    const name = busy ? "ref" : "unref";
    this.#child[name]();
    for (const stream of this.#child.stdio) stream?.[name]?.();
  }

  #fail(error) {
    this.#dead ??= error;
    for (const { reject } of this.#waiting.values()) reject(this.#dead);
    this.#waiting.clear();
  }

  #receive(data) {
    this.#parts.push(data);
    this.#length += data.length;
    while (this.#length >= 8) {
      if (this.#parts[0].length < 8) this.#parts = [Buffer.concat(this.#parts)];
      const whole = this.#parts[0].readUInt32BE(0);
      const text = this.#parts[0].readUInt32BE(4);
      if (whole < 4 || whole > FRAME_BYTES_MAX || text > whole - 4) {
        this.#fail(broken("safepoint sent a frame that is none", "connection_lost"));
        this.#child.kill();
        return;
      }
      if (this.#length < whole + 4) return;
      const all = this.#parts.length === 1 ? this.#parts[0] : Buffer.concat(this.#parts);
      this.#parts = all.length > whole + 4 ? [all.subarray(whole + 4)] : [];
      this.#length -= whole + 4;
      this.#answer(all.subarray(8, 8 + text), all.subarray(8 + text, 4 + whole));
    }
  }

  #answer(text, bytes) {
    let answer;
    try {
      answer = JSON.parse(text.toString("utf8"));
    } catch {
      this.#fail(broken("safepoint sent an answer that is not JSON", "connection_lost"));
      this.#child.kill();
      return;
    }
    const waiting = this.#waiting.get(answer.id);
    this.#waiting.delete(answer.id);
    if (this.#waiting.size === 0) this.#hold(false);
    if (waiting === undefined) {
      // An error without an id is about the stream itself.
      if (answer.error) this.#fail(broken(answer.error.message, "connection_lost"));
      return;
    }
    const { error } = answer;
    if (error === undefined) waiting.resolve({ result: answer.result, bytes });
    else if (error.code === -32001) waiting.reject(broken(error.message, "version_skew"));
    else waiting.reject(new SafepointError(error.message, error.data ?? { code: "protocol", kind: "usage" }));
  }
}

/** Collects values of a request and names their places in the attached bytes. */
export class Attachments {
  parts = [];
  #at = 0;

  add({ encoding, bytes }) {
    const part = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.parts.push(part);
    const from = this.#at;
    this.#at += part.length;
    return { encoding, bytes: [from, part.length] };
  }
}
