// Changed paths beside the difference of the chosen one: for a checkpoint, and for any two states.
import { ask } from "../api.js";
import { count, pathText } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Failure } from "../states.js";
import { asProblem } from "../load.js";
import { FileDifference } from "../diff/file.js";
import { changedNodes } from "./nodes.js";
import { Tree } from "./tree.js";

const changesAsked = 1000;

/**
 * Differing paths, a page after the other.
 * @param {string} from @param {string} to
 */
export function useChanges(from, to) {
    const [state, setState] = useState(/** @type {{ changes: any[], total: number, next: number | null, ids: { from: string | null, to: string | null }, problem: any, loading: boolean }} */ ({
        changes: [], total: 0, next: null, ids: { from: null, to: null }, problem: null, loading: true,
    }));
    /** @param {number} skip @param {() => boolean} current */
    const get = async (skip, current) => {
        setState((old) => ({ ...old, loading: true, problem: null, ...(skip ? {} : { changes: [] }) }));
        try {
            const answer = await ask("/diff", { query: { from, to, skip: skip || undefined, limit: changesAsked } });
            if (!current()) return;
            setState((old) => ({
                changes: skip ? [...old.changes, ...answer.changes] : answer.changes, total: answer.total, next: answer.next,
                // The current state has no id; a checkpoint without a parent is compared with nothing.
                ids: { from: answer.from === answer.to ? null : answer.from, to: answer.to ?? "present" }, problem: null, loading: false,
            }));
        } catch (error) {
            if (current()) setState((old) => ({ ...old, problem: asProblem(error), loading: false }));
        }
    };
    useEffect(() => {
        let here = true;
        get(0, () => here);
        return () => { here = false; };
    }, [from, to]);
    return { ...state, more: () => get(state.next ?? 0, () => true), again: () => get(0, () => true) };
}

/** @param {{ from: string, to: string, changes: ReturnType<typeof useChanges>, chosen: string, choose: (path: string) => void, empty: string }} props */
export function ChangedFiles({ from, to, changes, chosen, choose, empty }) {
    const [closed, setClosed] = useState(/** @type {Set<string>} */ (new Set()));
    const nodes = changedNodes(changes.changes, closed, pathText);
    const files = nodes.filter((node) => !node.folder);
    const node = files.find((one) => one.key === chosen) ?? files[0];
    if (changes.problem) return html`<div class="inner"><${Failure} problem=${changes.problem} again=${changes.again} /></div>`;
    if (changes.loading && changes.changes.length === 0) return html`<p class="inner muted spin">Comparing</p>`;
    if (changes.total === 0) return html`<div class="empty"><h2>${empty}</h2><p>No path differs between these two states.</p></div>`;
    const toggle = (/** @type {any} */ folder) => {
        const next = new Set(closed);
        if (!next.delete(folder.key)) next.add(folder.key);
        setClosed(next);
    };
    const item = node?.item;
    return html`<div class="panes">
        <div class="side"><${Tree} nodes=${nodes} chosen=${node?.key ?? ""} choose=${(/** @type {any} */ one) => choose(one.key)} toggle=${toggle} label="Changed paths" />
            ${changes.next !== null && html`<button class="morepaths" disabled=${changes.loading} onClick=${changes.more}>Next of ${count(changes.total, "path")}</button>`}</div>
        <div class="pane">${item && ((item.new ?? item.old)?.type === "directory"
            ? html`<p class="hint muted">Folder <span class="mono">${pathText(item.path)}</span>: ${item.change}</p>`
            : html`<${FileDifference} from=${from} to=${to} path=${item.path} oldPath=${item.old_path} ids=${changes.ids} modes=${[item.old?.mode ?? null, item.new?.mode ?? null]} />`)}</div>
    </div>`;
}
