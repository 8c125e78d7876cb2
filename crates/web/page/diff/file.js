// The difference of one file between two states, with its ways to look at it.
import { ask, pathQuery } from "../api.js";
import { pathKey, pathText, short, size } from "../format.js";
import { html, signal, useEffect, useState } from "../html.js";
import { useKeys } from "../keys.js";
import { Loaded, useLoad } from "../load.js";
import { link } from "../route.js";
import { Pictures } from "./image.js";
import { Lines } from "./lines.js";
import { stoppedWords } from "./stopped.js";

const stored = "safepoint-diff";
export const view = signal(localStorage.getItem(stored) ?? "split");
const spaces = signal("keep");
/** Below this width one column is shown, whatever was chosen. */
export const narrow = signal(matchMedia("(max-width: 860px)").matches);
matchMedia("(max-width: 860px)").addEventListener("change", (change) => { narrow.value = change.matches; });
/** Equal lines around a change: at first, and most. */
const [fewest, most] = [3, 100_000];

/**
 * @param {{ from: string, to: string, path: any, oldPath?: any, versions?: boolean, modes?: (string | null)[], ids: { from: string | null, to: string | null } }} props
 */
export function FileDifference({ from, to, path, oldPath, ids, modes, versions = true }) {
    const [hunk, setHunk] = useState(0);
    const [context, setContext] = useState(fewest);
    const [back, setBack] = useState(/** @type {number[]} */ ([]));
    const identity = JSON.stringify([from, to, path]);
    useEffect(() => {
        setHunk(0);
        setBack([]);
        setContext(fewest);
    }, [identity]);
    const load = useLoad(() => ask("/diff/file", {
        query: { from, to, path: pathQuery(path), old_path: oldPath ? pathQuery(oldPath) : undefined, context, space: spaces.value === "ignore" ? "ignore" : undefined, hunk: hunk || undefined },
    }), [identity, hunk, context, spaces.value]);
    const shown = narrow.value ? "inline" : view.value;
    const choose = (/** @type {string} */ next) => { view.value = next; localStorage.setItem(stored, next); };
    useKeys({ f: () => { location.hash = link(["file"], { path: pathKey(path) }); } });
    return html`<section class="filediff" aria-label=${`Difference of ${pathText(path)}`}>
        <header class="row spread">
            <div class="row"><h2 class=${`mono name ${versions ? "" : "unseen"}`}>${oldPath ? html`<span class="muted">${pathText(oldPath)} → </span>` : ""}${pathText(path)}</h2>
                ${load.value?.kind === "text" && html`<span class="counts"><span class="add">+${load.value.added}</span><span class="remove">-${load.value.removed}</span></span>`}
                ${versions && html`<a class="small" href=${link(["file"], { path: pathKey(path) })}>Versions</a>`}</div>
            ${load.value?.kind === "text" && html`<div class="row">
                ${!narrow.value && html`<div class="group" role="group" aria-label="View">
                    <button aria-pressed=${shown === "split"} onClick=${() => choose("split")}>Split</button>
                    <button aria-pressed=${shown === "inline"} onClick=${() => choose("inline")}>Inline</button></div>`}
                <label class="check small"><input type="checkbox" checked=${spaces.value === "ignore"} onChange=${(/** @type {any} */ changed) => { spaces.value = changed.currentTarget.checked ? "ignore" : "keep"; }} /> Ignore spaces</label>
            </div>`}
        </header>
        <${Loaded} load=${load} words="Comparing">${(/** @type {any} */ value) => html`
            ${value.stopped && html`<p class="hint small">${stoppedWords(value.stopped, value.kind)}</p>`}
            <${Modes} old=${value.old} now=${value.new} modes=${modes} />
            ${value.kind === "image" ? html`<${Pictures} old=${{ checkpoint: ids.from, path: oldPath ?? path, side: value.old }} now=${{ checkpoint: ids.to, path, side: value.new }} />`
                : value.kind === "binary" ? html`<${Binary} old=${value.old} now=${value.new} />`
                : value.kind === "same" || value.hunks.length === 0 ? html`<p class="hint muted">${spaces.value === "ignore" && value.kind !== "same" ? "Only white space differs." : value.old && value.new && value.old.hash !== value.new.hash && value.kind === "text" ? "No line differs." : "The content is equal."}</p>`
                : html`<${Lines} hunks=${value.hunks} view=${shown} label=${`Lines of ${pathText(path)}`} firstPage=${hunk === 0} more=${(/** @type {number} */ equal) => { setHunk(0); setBack([]); setContext(Math.min(most, context + Math.min(500, Math.ceil(equal / 2)))); }} />`}
            ${(value.next !== null || hunk > 0) && html`<div class="row pager">
                <button disabled=${hunk === 0} onClick=${() => { setHunk(back[back.length - 1] ?? 0); setBack(back.slice(0, -1)); }}>Changes before</button>
                <button disabled=${value.next === null} onClick=${() => { setBack([...back, hunk]); setHunk(value.next); }}>More changes</button></div>`}
        `}<//>
    </section>`;
}

/** @param {{ old: any, now: any, modes?: (string | null)[] }} props */
function Modes({ old, now, modes = [] }) {
    if (!old) return html`<p class="hint small add">+ New file</p>`;
    if (!now) return html`<p class="hint small remove">- Removed</p>`;
    // A file of the current state is read without its mode; the list of changes has it.
    const [before, after] = [old.mode ?? modes[0], now.mode ?? modes[1]];
    const words = [old.type !== now.type && `${old.type} → ${now.type}`, before && after && before !== after && `mode ${before} → ${after}`].filter(Boolean);
    return words.length > 0 && html`<p class="hint small modify">${words.join("; ")}</p>`;
}

/** @param {{ old: any, now: any }} props */
function Binary({ old, now }) {
    return html`<table class="list binary"><caption class="unseen">Binary file</caption><thead><tr><th>Binary file</th><th class="number">Size</th><th>Content</th></tr></thead><tbody>
        ${[["before", old], ["after", now]].map(([word, side]) => html`<tr><td>${word}</td><td class="number">${side ? size(side.size) : "does not exist"}</td><td class="mono" title=${side?.hash ?? ""}>${side?.hash ? short(side.hash) : ""}</td></tr>`)}
    </tbody></table>`;
}
