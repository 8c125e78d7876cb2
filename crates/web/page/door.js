// The key: from the one-time token of the address, from this tab, or from another tab of the page.
import { answer, post, Problem, setKey } from "./api.js";

const stored = "safepoint-key";
const channel = new BroadcastChannel("safepoint");

channel.addEventListener("message", (event) => {
    const key = sessionStorage.getItem(stored);
    if (event.data?.ask === "key" && key) channel.postMessage({ key });
});

/** @returns {Promise<string | null>} */
function fromOtherTab() {
    return new Promise((resolve) => {
        const timer = setTimeout(resolve, 400, null);
        channel.addEventListener("message", function hear(event) {
            if (typeof event.data?.key !== "string") return;
            clearTimeout(timer);
            channel.removeEventListener("message", hear);
            resolve(event.data.key);
        });
        channel.postMessage({ ask: "key" });
    });
}

/** Returns false if the server does not take a key. @param {string} key */
async function taken(key) {
    setKey(key);
    try {
        await answer("/agents", { method: "GET" });
    } catch (error) {
        return !(error instanceof Problem && error.status === 401);
    }
    return true;
}

/** Enters with whatever key there is; false means that there is none. @returns {Promise<boolean>} */
export async function enter() {
    const token = /^#\/?token=([A-Za-z0-9_-]+)/.exec(location.hash)?.[1];
    let key = sessionStorage.getItem(stored);
    if (token) {
        // The token leaves the address before anything else can read or bookmark it.
        history.replaceState(null, "", location.pathname);
        dispatchEvent(new HashChangeEvent("hashchange"));
        key = (await post("/session", { token })).key;
    }
    // A reload after the server was started again has a key that it does not take.
    if (key && !token && !await taken(key)) key = null;
    key ??= await fromOtherTab();
    if (!key) return false;
    sessionStorage.setItem(stored, key);
    setKey(key);
    return true;
}

/** Forgets a key that the server no longer takes. */
export function leave() {
    sessionStorage.removeItem(stored);
    setKey("");
}
