// The server: requests with the key, problems as values, streams read through fetch.

/**
 * @typedef {{ type: string, title: string, status: number, code: string, kind: string, detail: string, causes: string[], hints: string[] }} ProblemBody
 */

export class Problem extends Error {
    /** @param {ProblemBody} body */
    constructor(body) {
        super(body.detail);
        this.body = body;
    }

    get code() {
        return this.body.code;
    }

    get status() {
        return this.body.status;
    }
}

/** The problem for a server that does not answer. @returns {Problem} */
export function gone() {
    return new Problem({
        type: "", title: "no answer", status: 0, code: "server_gone", kind: "failed",
        detail: "cannot reach the server: it has stopped, or the connection is broken",
        causes: [], hints: ["safepoint ui"],
    });
}

let key = "";

/** @param {string} value */
export function setKey(value) {
    key = value;
}

/** @typedef {{ query?: Record<string, any>, body?: unknown, method?: string, signal?: AbortSignal }} Asked */

/** @param {string} path @param {Asked} [asked] @returns {Promise<Response>} */
export async function answer(path, { query = {}, body, method, signal } = {}) {
    const search = Object.entries(query).filter(([, value]) => value !== undefined && value !== null)
        .map(([name, value]) => `${name}=${value instanceof Encoded ? value.text : encodeURIComponent(String(value))}`).join("&");
    /** @type {Record<string, string>} */
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response;
    try {
        response = await fetch(`/api/v1${path}${search ? `?${search}` : ""}`, {
            method: method ?? (body === undefined ? "GET" : "POST"), headers,
            body: body === undefined ? null : JSON.stringify(body), signal: signal ?? null, credentials: "omit", cache: "no-store",
        });
    } catch (error) {
        if (signal?.aborted) throw error;
        throw gone();
    }
    if (!response.ok) throw await problemOf(response);
    return response;
}

/** @param {Response} response */
async function problemOf(response) {
    try {
        return new Problem({ causes: [], hints: [], ...(await response.json()) });
    } catch {
        const detail = `the server answered ${response.status}`;
        return new Problem({ type: "", title: detail, status: response.status, code: "unexpected", kind: "failed", detail, causes: [], hints: [] });
    }
}

/** @param {string} path @param {Asked} [asked] @returns {Promise<any>} */
export async function ask(path, asked) {
    return (await answer(path, asked)).json();
}

/** @param {string} path @param {unknown} [body] @returns {Promise<any>} */
export function post(path, body = {}) {
    return ask(path, { body });
}

/** Text that is already percent-encoded. */
class Encoded {
    /** @param {string} text */
    constructor(text) {
        this.text = text;
    }
}

/** @typedef {string | { bytes: string }} Path */

/** A path as the server takes it: percent-encoded bytes. @param {Path} path */
export function pathQuery(path) {
    if (typeof path === "string") return path;
    const bytes = atob(path.bytes);
    return new Encoded([...bytes].map((byte) => `%${byte.charCodeAt(0).toString(16).padStart(2, "0")}`).join(""));
}

/** Time without a byte after which a stream counts as broken; the server writes a comment each 15 s. */
const silence = 40_000;

/**
 * The events of a stream, until it ends.
 * @param {string} path @param {Asked & { opened?: () => void }} asked
 * @returns {AsyncGenerator<{ id: string, event: string, data: any }>}
 */
export async function* stream(path, asked) {
    const response = await answer(path, asked);
    asked.opened?.();
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
    const decoder = new TextDecoder();
    let rest = "";
    try {
        for (;;) {
            let timer = 0;
            const quiet = new Promise((resolve) => { timer = window.setTimeout(resolve, silence, { done: true }); });
            const { done, value } = await /** @type {Promise<any>} */ (Promise.race([reader.read(), quiet]));
            clearTimeout(timer);
            if (done) return;
            rest += decoder.decode(value, { stream: true });
            const blocks = rest.split(/\r?\n\r?\n/);
            rest = blocks.pop() ?? "";
            for (const block of blocks) {
                const event = parsed(block);
                if (event) yield event;
            }
        }
    } finally {
        reader.cancel().catch(() => {});
    }
}

/** One event of a stream; a comment alone is none. @param {string} block */
export function parsed(block) {
    const event = { id: "", event: "message", data: /** @type {any} */ (null) };
    let data = "";
    for (const line of block.split(/\r?\n/)) {
        const colon = line.indexOf(":");
        const field = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (field === "id") event.id = value;
        if (field === "event") event.event = value;
        if (field === "data") data += data ? `\n${value}` : value;
    }
    if (!data) return null;
    try {
        event.data = JSON.parse(data);
    } catch {
        event.data = data;
    }
    return event;
}

/**
 * Follows the work of a request that is under way: its job exists once the server has read the request.
 * @param {string} id @param {{ progress: (job: any) => void, signal: AbortSignal }} watch
 */
export async function followWork(id, { progress, signal }) {
    while (!signal.aborted) {
        // Most work ends before the first report.
        await new Promise((resolve) => setTimeout(resolve, 200));
        if (signal.aborted) return;
        try {
            await followJob(id, { progress, signal });
            return;
        } catch (error) {
            if (!(error instanceof Problem) || error.status !== 404) return;
        }
    }
}

/**
 * Follows a job to its end; the last value is the job.
 * @param {string} id @param {{ item?: (data: any) => void, progress?: (job: any) => void, signal?: AbortSignal }} watch
 * @returns {Promise<any>}
 */
export async function followJob(id, { item, progress, signal }) {
    for await (const event of stream(`/jobs/${id}/events`, signal ? { signal } : {})) {
        if (event.event === "item") item?.(event.data);
        if (event.event === "progress") progress?.(event.data);
        if (event.event === "end") return event.data;
    }
    return ask(`/jobs/${id}`);
}

/** @param {string} id */
export function cancelJob(id) {
    return ask(`/jobs/${id}`, { method: "DELETE" });
}
