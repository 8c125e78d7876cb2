/** Failure of a call: the codes are in docs/errors.md. */
export class SafepointError extends Error {
  code: string;
  kind: "failed" | "usage" | "not_found" | "busy" | "conflict" | "damaged" | "interrupted" | "internal";
  hints: string[];
  causes: string[];
}

/** Failure to roll back, after the failure that caused it. */
export class RollbackFailed extends SafepointError {}

export interface Options {
  /** Safepoint's home; by default `SAFEPOINT_HOME`, or the data directory of the user. */
  home?: string;
  /** The program; by default `SAFEPOINT_BIN`, that of the platform's package, or `safepoint` on `PATH`. */
  program?: string;
}

export class Connection {
  static open(options?: Options): Promise<Connection>;
  readonly pid: number | undefined;
  readonly version: string;
  readonly home: string;
  call(
    method: string,
    params?: unknown,
    bytes?: Uint8Array[],
  ): Promise<{ result: any; bytes: Uint8Array }>;
  close(): Promise<void>;
}

/** Record of a checkpoint; all fields are in docs/schemas. */
export interface Checkpoint {
  id: string;
  uuid: string;
  label: string | null;
  created_at: string;
  [field: string]: unknown;
}

/** Result of a rollback; all fields are in docs/schemas. */
export interface RolledBack {
  id: string | null;
  to: string;
  safety_checkpoint: string | null;
  restored_files_count: number;
  removed_files_count: number;
  [field: string]: unknown;
}

export interface Transaction {
  readonly checkpoint: Checkpoint;
  /** Rolls back when the work is over, without an error. */
  reject(reason?: string): void;
}

export class Workspace implements AsyncDisposable {
  static open(folder?: string, options?: Options): Promise<Workspace>;
  readonly id: string;
  readonly root: string;
  readonly threads: Threads;
  readonly attempts: Attempts;
  readonly connection: Connection;
  /** Runs a command line in the workspace and returns the data of `--json`. */
  command(...args: string[]): Promise<any>;
  create(label?: string, options?: { onlyIfChanged?: boolean; pinned?: boolean }): Promise<Checkpoint>;
  /** Pins a checkpoint, so that it is never pruned, or unpins it. */
  pin(checkpoint: string | Checkpoint, pinned?: boolean): Promise<void>;
  list(options?: { limit?: number }): Promise<Checkpoint[]>;
  show(checkpoint: string | Checkpoint): Promise<any>;
  diff(...checkpoints: (string | Checkpoint)[]): Promise<any>;
  status(): Promise<any>;
  rollback(
    checkpoint: string | Checkpoint,
    options?: { dryRun?: boolean; paths?: string[]; parts?: string[] },
  ): Promise<RolledBack>;
  /** Refused if files changed since, unless `replaceChanges`; a safety checkpoint keeps them then. */
  undo(options?: { dryRun?: boolean; replaceChanges?: boolean }): Promise<RolledBack>;
  redo(options?: { dryRun?: boolean; replaceChanges?: boolean }): Promise<RolledBack>;
  transaction<T>(label: string, work: (transaction: Transaction) => T | Promise<T>): Promise<T>;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Record of an attempt; all fields are in docs/schemas. */
export interface Attempt {
  id: string;
  number: number;
  name: string;
  kind: "overlay" | "reflink" | "copy";
  state: "open" | "kept" | "dropped";
  /** Checkpoint of the project at the start. */
  base: string;
  /** Newest checkpoint of what it made. */
  result: string | null;
  exit_status: number | null;
  /** Result of the check, if one was requested. */
  verified: boolean | null;
  tests: { passed: number; failed: number; skipped: number } | null;
  metrics: Record<string, number>;
  changes: { added: number; modified: number; removed: number };
  /** Only of a comparison. */
  lines?: { added: number; removed: number } | null;
  seconds: number | null;
  disk_bytes: number;
  processes: { pid: number; name: string }[];
  [field: string]: unknown;
}

/** Result of keeping an attempt, or its preview. */
export interface AttemptKept {
  attempt: Attempt;
  /** Null if the attempt changed nothing. */
  rollback: RolledBack | null;
  /** Text files of which the lines of both sides are taken. */
  merged: string[];
  /** Paths that changed in the project since the start, and stay as they are. */
  changed_in_project: string[];
  /** Names of the other attempts that are dropped. */
  dropped: string[];
  ended: { pid: number; name: string }[];
}

/** An attempt, its name or its number. */
export type AttemptLike = string | number | Attempt;

/** Attempts of a workspace. Their commands run with `safepoint attempt exec`. */
export class Attempts {
  start(name?: string, options?: { copy?: boolean }): Promise<Attempt>;
  list(options?: { all?: boolean }): Promise<Attempt[]>;
  show(attempt: AttemptLike): Promise<Attempt>;
  compare(options?: {
    best?: string;
    lowest?: boolean;
  }): Promise<{ attempts: Attempt[]; best: string | null }>;
  diff(...attempts: AttemptLike[]): Promise<unknown[]>;
  previewKeep(attempt: AttemptLike, options?: { others?: "drop" | "open" }): Promise<AttemptKept>;
  keep(attempt: AttemptLike, options?: { others?: "drop" | "open" }): Promise<AttemptKept>;
  drop(attempt: AttemptLike, options?: { deleteCommits?: boolean }): Promise<Attempt>;
}

/** Opaque value: bytes, and the name of their encoding. */
export interface Value {
  encoding: string;
  bytes: Uint8Array;
}

export interface NewState {
  namespace?: string;
  id: string;
  parent?: string;
  runId?: string;
  metadata?: Record<string, unknown>;
  body: Value;
  /** Version of each channel. */
  channels?: Record<string, string>;
  /** Values that are new in this state; null for a channel that is empty now. */
  values?: Record<string, Value | null>;
  files?: string;
  serializer?: string;
  ttlMs?: number;
}

export interface NewWrites {
  namespace?: string;
  state: string;
  taskId: string;
  taskPath?: string;
  writes: { index: number; channel: string; value: Value }[];
  /** Replaces recorded writes of the same task and index. */
  replace?: boolean;
  serializer?: string;
}

export interface State {
  thread: string;
  namespace: string;
  id: string;
  parent?: string;
  runId?: string;
  metadata: Record<string, unknown>;
  body: Value;
  channels: Record<string, { version: string; value: Value | null }>;
  writes: { taskId: string; index: number; channel: string; value: Value; taskPath: string }[];
  files?: string;
  filesPruned: boolean;
  hidden: boolean;
  isHead: boolean;
  createdAt: string;
}

export interface Wanted {
  thread?: string;
  namespace?: string;
  id?: string;
  before?: string;
  metadata?: Record<string, unknown>;
  limit?: number;
}

export class Threads {
  static open(options?: Options): Promise<Threads>;
  put(
    thread: string,
    state: NewState,
    options?: { capture?: { label?: string; onlyIfChanged?: boolean } },
  ): Promise<{ checkpoint: Checkpoint; unchanged: boolean } | null>;
  putWrites(thread: string, writes: NewWrites): Promise<void>;
  get(thread: string, options?: { namespace?: string; id?: string }): Promise<State | undefined>;
  page(wanted?: Wanted & { after?: string }): Promise<{ states: State[]; next: string | null }>;
  list(wanted?: Wanted): AsyncGenerator<State>;
  threads(): Promise<{ thread: string; workspace: string | null; version: number }[]>;
  delete(thread: string): Promise<boolean>;
  deleteRuns(runs: string[]): Promise<number>;
  copy(from: string, to: string): Promise<void>;
  prune(thread: string, options?: { last?: number; hiddenAncestors?: number }): Promise<number>;
  rollback(
    thread: string,
    id: string,
    options?: { namespace?: string; dryRun?: boolean },
  ): Promise<RolledBack>;
  close(): Promise<void>;
}
