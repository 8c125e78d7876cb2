// All files of a checkpoint, one folder at a time.
import { ask, pathQuery } from "../api.js";
import { pathKey, pathText, size } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Failure } from "../states.js";
import { asProblem } from "../load.js";
import { Tree } from "./tree.js";

const entriesAsked = 1000;

/** @typedef {{ path: any, entries: any[], next: number | null, total: number }} Folder */

/** @param {{ checkpoint: string, chosen: string, choose: (node: import("./nodes.js").Node) => void }} props */
export function AllFiles({ checkpoint, chosen, choose }) {
    const [folders, setFolders] = useState(/** @type {Map<string, Folder>} */ (new Map()));
    const [open, setOpen] = useState(/** @type {Set<string>} */ (new Set()));
    const [problem, setProblem] = useState(/** @type {any} */ (null));
    /** @param {string} key @param {any} path @param {number} skip */
    const get = async (key, path, skip) => {
        try {
            const answer = await ask("/tree", { query: { checkpoint, path: path === "" ? undefined : pathQuery(path), skip: skip || undefined, limit: entriesAsked } });
            setFolders((old) => {
                const before = skip ? old.get(key)?.entries ?? [] : [];
                return new Map(old).set(key, { path, entries: [...before, ...answer.entries], next: answer.next, total: answer.total });
            });
        } catch (error) {
            setProblem(asProblem(error));
        }
    };
    useEffect(() => {
        setFolders(new Map());
        setOpen(new Set());
        get("", "", 0);
    }, [checkpoint]);
    if (problem) return html`<${Failure} problem=${problem} again=${() => { setProblem(null); get("", "", 0); }} />`;
    if (!folders.has("")) return html`<p class="hint muted spin">Loading</p>`;
    const nodes = nodesOf(folders, open, "", 1);
    const toggle = (/** @type {import("./nodes.js").Node} */ node) => {
        if (node.item?.more !== undefined) return get(node.item.more, node.item.path, node.item.skip);
        const next = new Set(open);
        if (next.delete(node.key)) return setOpen(next);
        setOpen(next.add(node.key));
        if (!folders.has(node.key)) get(node.key, node.item.path, 0);
    };
    return html`<${Tree} nodes=${nodes} chosen=${chosen} choose=${choose} toggle=${toggle} label="All files" />`;
}

/** @param {Map<string, Folder>} folders @param {Set<string>} open @param {string} key @param {number} level @returns {import("./nodes.js").Node[]} */
function nodesOf(folders, open, key, level) {
    const folder = folders.get(key);
    if (!folder) return [{ key: `${key}\u0000loading`, name: "Loading…", level, folder: false }];
    const nodes = folder.entries.flatMap((entry) => {
        const name = pathText(entry.name);
        const own = pathKey(entry.path);
        if (entry.type !== "directory") return [{ key: own, name, level, folder: false, item: entry, aside: entry.type === "symlink" ? "link" : size(entry.size ?? 0) }];
        const inner = `${own}/`;
        const isOpen = open.has(inner);
        return [{ key: inner, name: `${name}/`, level, folder: true, open: isOpen, item: entry }, ...(isOpen ? nodesOf(folders, open, inner, level + 1) : [])];
    });
    if (folder.next !== null) {
        nodes.push({ key: `${key}\u0000more`, name: `${(folder.total - folder.entries.length).toLocaleString("en")} more…`, level, folder: true, open: false, item: { more: key, path: folder.path, skip: folder.next } });
    }
    return nodes;
}
