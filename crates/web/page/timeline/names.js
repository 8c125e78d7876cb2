// Names for ids: titles of checkpoints, and what sessions were asked for. Each is asked for once, when a row needs it.
import { ask } from "../api.js";
import { short } from "../format.js";
import { signal } from "../html.js";
import { sessionName, titleOf } from "./words.js";

/** @type {import("../vendor/signals.js").Signal<Map<string, string>>} */
const titles = signal(new Map());
/** @type {import("../vendor/signals.js").Signal<Map<string, string>>} */
const requests = signal(new Map());
/** @type {Set<string>} */
const asked = new Set();

/** The title of a checkpoint; until it is known, its short id. @param {string} id */
export function nameOf(id) {
    const known = titles.value.get(id);
    if (known === undefined && !asked.has(id)) {
        asked.add(id);
        ask(`/checkpoints/${encodeURIComponent(id)}`).then(({ row }) => { titles.value = new Map(titles.peek()).set(id, titleOf(row)); }, () => {});
    }
    return known ?? short(id);
}

/** What a session was asked for; else its id, shortened. @param {string | null} id */
export function requestOf(id) {
    if (!id) return "";
    const known = requests.value.get(id);
    if (known === undefined && !asked.has(`session ${id}`)) {
        // One answer has all sessions: a new one is asked for only if its id was not among them.
        asked.add(`session ${id}`);
        if (!asked.has("sessions")) {
            asked.add("sessions");
            queueMicrotask(readSessions);
        }
    }
    return known ?? sessionName(id);
}

async function readSessions() {
    try {
        const { sessions } = await ask("/sessions");
        requests.value = new Map(sessions.filter((/** @type {any} */ one) => one.request).map((/** @type {any} */ one) => [one.session_id, one.request]));
    } catch {
        // The ids stay.
    }
    asked.delete("sessions");
}
