// The workspace as the server reports it, and its events as they come.
import { answer, ask, Problem, stream } from "./api.js";
import { leave } from "./door.js";
import { signal } from "./html.js";

/** @type {import("./vendor/signals.js").Signal<any>} */
export const home = signal(null);
/** @type {import("./vendor/signals.js").Signal<"live" | "gone" | "locked">} */
export const link = signal("live");
/** The last event that was heard; screens read it to know that something changed. */
export const event = signal(/** @type {any} */ (null));
export const now = signal(new Date());

/** Sentence about what recovery did after a crash. */
export const recovered = signal("");
let told = { undone: 0, settled: 0 };

/** @param {{ undone: number, settled: number }} counts of all that this server recovered */
function tellRecovery(counts) {
    if (counts.undone > told.undone) recovered.value = "A rollback was interrupted. It was undone: the folder is exactly as before it.";
    else if (counts.settled > told.settled) recovered.value = "A rollback was complete but not cleaned up. It is finished: the folder stays as it is.";
    told = counts;
}

const seenKey = () => `safepoint-seen-${home.peek()?.workspace?.id ?? ""}`;

/** The newest checkpoint of the last visit, for "since you last looked". */
export const lastSeen = signal(0);

/** @param {number} seq */
export function remember(seq) {
    localStorage.setItem(seenKey(), JSON.stringify({ seq, at: new Date().toISOString() }));
}

export function recall() {
    try {
        return /** @type {{ seq: number, at: string } | null} */ (JSON.parse(localStorage.getItem(seenKey()) ?? "null"));
    } catch {
        return null;
    }
}

export async function refresh() {
    home.value = await ask("/workspace");
    now.value = new Date();
    tellRecovery(home.value.recovered);
}

/** Listens for as long as the page is open; after a break it goes on from the last event. */
export async function listen() {
    let after = home.peek().event;
    let pause = 500;
    for (;;) {
        try {
            const opened = () => {
                if (link.value === "live") return;
                link.value = "live";
                // Times and the current state change without an event.
                refresh().catch(() => {});
            };
            for await (const heard of stream("/events", { query: { after }, opened })) {
                pause = 500;
                after = heard.data.seq;
                event.value = heard.data;
                later();
            }
        } catch (error) {
            if (error instanceof Problem && error.status === 401) {
                leave();
                link.value = "locked";
                return;
            }
        }
        // A stream that ends may only be a server that restarts: ask, then listen again.
        if (!await alive()) link.value = "gone";
        await new Promise((resolve) => setTimeout(resolve, pause));
        pause = Math.min(pause * 2, 5000);
    }
}

async function alive() {
    try {
        await answer("/workspace");
        return true;
    } catch (error) {
        return error instanceof Problem && error.status !== 0;
    }
}

let timer = 0;

/** One refresh for a burst of events. */
function later() {
    if (timer) return;
    timer = window.setTimeout(() => {
        timer = 0;
        refresh().catch(() => {});
    }, 300);
}
setInterval(() => {
    now.value = new Date();
}, 30_000);
