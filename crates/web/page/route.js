// The screen in the address: after the `#`, so that nothing of it reaches a server or its logs.
import { signal } from "./html.js";

/** @typedef {{ screen: string, names: string[], query: Record<string, string> }} Route */

/** @param {string} hash @returns {Route} */
export function read(hash) {
    const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?");
    const names = path.split("/").map(decoded).filter(Boolean);
    return { screen: names[0] ?? "timeline", names: names.slice(1), query: Object.fromEntries(new URLSearchParams(search)) };
}

/** @param {string} part */
function decoded(part) {
    try {
        return decodeURIComponent(part);
    } catch {
        return part;
    }
}

export const route = signal(read(location.hash));
addEventListener("hashchange", () => {
    route.value = read(location.hash);
});

/**
 * @param {string[]} names
 * @param {Record<string, string | undefined>} [query]
 */
export function link(names, query = {}) {
    const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
    const search = new URLSearchParams(/** @type {[string, string][]} */ (kept)).toString();
    return `#/${names.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

/** @param {string[]} names @param {Record<string, string | undefined>} [query] */
export function go(names, query) {
    location.hash = link(names, query);
}

/** Changes the query of this screen without a step in the history. @param {Record<string, string | undefined>} query */
export function amend(query) {
    const { screen, names, query: old } = route.peek();
    history.replaceState(null, "", link([screen, ...names], { ...old, ...query }));
    route.value = read(location.hash);
}
