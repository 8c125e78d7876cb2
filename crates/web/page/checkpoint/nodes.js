// Nodes of a tree of paths, in the order in which they are shown.
import { pathKey } from "../format.js";

/**
 * @typedef {object} Node
 * @property {string} key
 * @property {string} name
 * @property {number} level from 1
 * @property {boolean} folder
 * @property {boolean} [open]
 * @property {number} [inside] changed paths below
 * @property {any} [item] the change or entry
 * @property {string} [sign]
 * @property {string} [aside]
 */

/**
 * Nodes of changed paths, folders first seen where their first path is. Chains of single folders are one node.
 * @param {{ path: any, change: string, old: any, new: any }[]} changes sorted by path
 * @param {Set<string>} closed
 * @param {(path: any) => string} textOf
 * @returns {Node[]}
 */
export function changedNodes(changes, closed, textOf) {
    /** @type {any} */
    const root = { folders: new Map(), files: [] };
    for (const change of changes) {
        const parts = textOf(change.path).split("/");
        let at = root;
        for (const part of parts.slice(0, -1)) {
            if (!at.folders.has(part)) at.folders.set(part, { folders: new Map(), files: [] });
            at = at.folders.get(part);
        }
        at.files.push({ name: parts[parts.length - 1], change });
    }
    /** @type {Node[]} */
    const nodes = [];
    walk(root, "", 1, closed, nodes);
    return nodes;
}

/** @param {any} at @returns {number} */
function sizeOf(at) {
    return at.files.length + [...at.folders.values()].reduce((sum, folder) => sum + sizeOf(folder), 0);
}

/** @param {any} at @param {string} prefix @param {number} level @param {Set<string>} closed @param {Node[]} nodes */
function walk(at, prefix, level, closed, nodes) {
    for (const [first, inner] of at.folders) {
        let name = first;
        let folder = inner;
        while (folder.files.length === 0 && folder.folders.size === 1) {
            const [[next, deeper]] = folder.folders;
            name = `${name}/${next}`;
            folder = deeper;
        }
        const key = `${prefix}${name}/`;
        const open = !closed.has(key);
        nodes.push({ key, name, level, folder: true, open, inside: sizeOf(folder) });
        if (open) walk(folder, key, level + 1, closed, nodes);
    }
    for (const { name, change } of at.files) {
        const directory = (change.new ?? change.old)?.type === "directory";
        nodes.push({ key: pathKey(change.path), name: directory ? `${name}/` : name, level, folder: false, item: change, sign: change.change });
    }
}
