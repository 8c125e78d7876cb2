// One checkpoint: what changed in it, all of its files, what it left out, its parts.
import { ask, post } from "../api.js";
import { Counts } from "../counts.js";
import { count, pathOfKey, pathText, short, size, whole } from "../format.js";
import { home } from "../home.js";
import { html, signal } from "../html.js";
import { useKeys } from "../keys.js";
import { asProblem, Loaded, useLoad } from "../load.js";
import { amend, go, link, route } from "../route.js";
import { toast } from "../toast.js";
import { requestOf } from "../timeline/names.js";
import { testsOf, titleOf } from "../timeline/words.js";
import { togglePick } from "../timeline/pick.js";
import { AllFiles } from "./all.js";
import { ChangedFiles, useChanges } from "./changes.js";
import { Content } from "./content.js";

export function Checkpoint() {
    const id = route.value.names[0] ?? "";
    const load = useLoad(() => ask(`/checkpoints/${encodeURIComponent(id)}`), [id, home.value?.event]);
    return html`<main class="screen fill">${load.value ? html`<${Shown} key=${load.value.row.checkpoint.id} shown=${load.value} again=${load.again} />` : html`<${Loaded} load=${load}>${() => null}<//>`}</main>`;
}

/** The checkpoint before or after in commit order. @param {number} seq @param {number} step */
async function neighbour(seq, step) {
    if (step < 0) return (await ask("/checkpoints", { query: { before: seq, limit: 1 } })).checkpoints[0];
    const { total } = await ask("/checkpoints", { query: { from: seq + 1, limit: 1 } });
    return total ? (await ask("/checkpoints", { query: { from: seq + 1, skip: total - 1 || undefined, limit: 1 } })).checkpoints[0] : null;
}

const kept = signal("changed");

/** @param {{ shown: { row: any, coverage: any, changed: number, attempt: string | null }, again: () => void }} props */
function Shown({ shown, again }) {
    const { row, coverage } = shown;
    const { checkpoint } = row;
    const { path = "", tab = kept.value } = route.value.query;
    // A checkpoint of an attempt is only looked at here.
    const locked = home.value.read_only || shown.attempt !== null;
    const step = async (/** @type {number} */ by) => {
        const to = await neighbour(row.seq, by);
        if (to) go(["checkpoint", to.checkpoint.id]);
    };
    useKeys({
        "[": () => step(-1), "]": () => step(1),
        r: () => { if (!locked) go(["rollback", checkpoint.id]); },
        c: () => { togglePick(checkpoint.id, titleOf(row)); go(["timeline"]); },
    });
    const select = (/** @type {string} */ next) => { kept.value = next; amend({ tab: next, path: undefined, line: undefined }); };
    const left = coverage.skipped.length + coverage.unsettled.length;
    const tabs = [["changed", `Changed ${shown.changed}`], ["all", `All ${checkpoint.files.count}`], ["left", `Left out ${left}`], ["parts", `Parts ${checkpoint.parts.length}`]];
    return html`
        <${Head} row=${row} again=${again} step=${step} locked=${locked} attempt=${shown.attempt} />
        <div class="tabs" role="tablist" aria-label="Of the checkpoint" onKeyDown=${(/** @type {KeyboardEvent} */ pressed) => tabKeys(pressed, tabs.map(([name]) => name ?? ""), tab, select)}>${tabs.map(([name, words]) => html`
            <button role="tab" class="plain" id=${`tab-${name}`} aria-selected=${tab === name} aria-controls="tabpanel" tabindex=${tab === name ? 0 : -1} onClick=${() => select(name ?? "")}>${words}</button>`)}</div>
        <div class="tabbed" role="tabpanel" id="tabpanel" aria-labelledby=${`tab-${tab}`}>
            ${tab === "changed" && html`<${Changed} checkpoint=${checkpoint} path=${path} />`}
            ${tab === "all" && html`<${All} checkpoint=${checkpoint} path=${path} line=${Number(route.value.query.line ?? 0)} />`}
            ${tab === "left" && html`<${LeftOut} coverage=${coverage} />`}
            ${tab === "parts" && html`<${Parts} checkpoint=${checkpoint} />`}
        </div>`;
}

/** @param {KeyboardEvent} pressed @param {string[]} names @param {string} at @param {(name: string) => void} select */
function tabKeys(pressed, names, at, select) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[pressed.key];
    if (!step) return;
    const name = names[(names.indexOf(at) + step + names.length) % names.length] ?? "changed";
    select(name);
    document.getElementById(`tab-${name}`)?.focus();
    pressed.preventDefault();
}

/** @param {{ row: any, again: () => void, step: (by: number) => void, locked: boolean, attempt: string | null }} props */
function Head({ row, again, step, locked, attempt }) {
    const { checkpoint, turn, agent } = row;
    const tests = testsOf(checkpoint);
    const isGood = home.value.last_good?.checkpoint === checkpoint.id && home.value.last_good.why !== "position";
    const pin = async () => {
        try {
            await post(`/checkpoints/${checkpoint.id}/${checkpoint.pinned ? "unpin" : "pin"}`);
            again();
        } catch (error) {
            toast(asProblem(error).message, [], true);
        }
    };
    return html`<header class="head">
        <div class="stack tight">
            <h1 class="row">${attempt && html`<a href="#/attempts">${attempt}</a>`} ${titleOf(row)} ${home.value.workspace.head === checkpoint.id && html`<span class="chip mark">here</span>`} ${isGood && html`<span class="chip good">★ last good</span>`} ${checkpoint.pinned && html`<span class="chip">pinned</span>`}</h1>
            <div class="facts small"><span>${whole(checkpoint.created_at)}</span>${agent && html`<span>${agent}</span>`}${turn && html`<span>${turn.side === "after" ? "end of" : "before"} turn ${turn.number}</span>`}
                ${checkpoint.session_id && html`<span class="cut" title=${checkpoint.session_id}>session “${requestOf(checkpoint.session_id)}”</span>`}<${Counts} files=${checkpoint.files} />
                ${tests && html`<span class=${tests.failing ? "remove" : "good"}>${tests.failing ? `✗ ${tests.failing} failing` : `✓ ${tests.passing} passing`}</span>`}
                ${checkpoint.parent ? html`<a href=${link(["checkpoint", checkpoint.parent])}>parent ${short(checkpoint.parent)}</a>` : html`<span>the first, no parent</span>`}
                <span>${size(checkpoint.size_bytes)} added to the store</span><span class="mono" title=${checkpoint.id}>${short(checkpoint.id)}</span></div>
        </div>
        <div class="row">
            ${!locked && html`<button class="main" onClick=${() => go(["rollback", checkpoint.id])}>Roll back…</button>`}
            ${turn?.side === "after" && !locked && html`<button onClick=${() => go(["turn", String(turn.number)])}>Take back this turn…</button>`}
            <button onClick=${() => go(["compare", checkpoint.id, "present"])} disabled=${home.value.read_only}>Compare with now</button>
            <button onClick=${() => { togglePick(checkpoint.id, titleOf(row)); go(["timeline"]); }}>Compare…</button>
            ${!locked && html`<button aria-pressed=${checkpoint.pinned} onClick=${pin}>Pin</button>`}
            <span class="group"><button aria-label="Older checkpoint" title="Older ( [ )" onClick=${() => step(-1)}>‹</button><button aria-label="Newer checkpoint" title="Newer ( ] )" onClick=${() => step(1)}>›</button></span>
        </div>
    </header>`;
}

/** @param {{ checkpoint: any, path: string }} props */
function Changed({ checkpoint, path }) {
    const changes = useChanges("parent", checkpoint.id);
    return html`<${ChangedFiles} from="parent" to=${checkpoint.id} changes=${changes} chosen=${path} choose=${(/** @type {string} */ next) => amend({ path: next })} empty="Nothing changed" />`;
}

/** @param {{ checkpoint: any, path: string, line: number }} props */
function All({ checkpoint, path, line }) {
    return html`<div class="panes">
        <div class="side"><${AllFiles} checkpoint=${checkpoint.id} chosen=${path} choose=${(/** @type {any} */ node) => amend({ path: node.key, line: undefined })} /></div>
        <div class="pane">${path ? html`<${Content} checkpoint=${checkpoint.id} path=${pathOfKey(path)} line=${line} />` : html`<p class="hint muted">Choose a file.</p>`}</div>
    </div>`;
}

/** Reasons of the coverage in words. @type {Record<string, string>} */
const reasons = {
    git: "git's own folder", own_folder: "Safepoint's own folder", cache_directory: "a cache directory (CACHEDIR.TAG)", ignored: "ignored by .safepointignore or a rule",
    special_file: "a socket, pipe or device", mount_point: "another file system is mounted there", unreadable: "cannot be read", too_deep: "too deep",
    purged: "purged", database_sidecar: "a side file of a database", other_home: "another Safepoint home", not_chosen: "not chosen",
};

/** @param {{ coverage: any }} props */
function LeftOut({ coverage }) {
    if (coverage.skipped.length + coverage.unsettled.length === 0) return html`<div class="empty"><h2>Nothing was left out</h2><p>Every path of the folder is in this checkpoint.</p></div>`;
    return html`<div class="inner scroll" tabindex="0" role="region" aria-label="Left out"><table class="list"><caption class="unseen">Paths that are not in the checkpoint</caption><thead><tr><th>Path</th><th>Reason</th></tr></thead><tbody>
        ${coverage.skipped.map((/** @type {any} */ one) => html`<tr><td class="mono">${pathText(one.path)}</td><td>${reasons[one.why] ?? one.why}; everything below too</td></tr>`)}
        ${coverage.unsettled.map((/** @type {any} */ one) => html`<tr><td class="mono">${pathText(one)}</td><td>captured, but it changed during the capture</td></tr>`)}
    </tbody></table></div>`;
}

/** @param {{ checkpoint: any }} props */
function Parts({ checkpoint }) {
    return html`<div class="inner scroll" tabindex="0" role="region" aria-label="Parts"><table class="list"><caption class="unseen">Parts of the checkpoint</caption><thead><tr><th>Part</th><th>Of</th><th>Object</th></tr></thead><tbody>
        ${checkpoint.parts.map((/** @type {any} */ part) => html`<tr><td>${part.kind.replace("_", " ")}</td><td>${part.key === home.value.workspace.id ? home.value.workspace.name : html`<span class="mono">${part.key}</span>`}</td><td class="mono" title=${part.document}>${part.document.slice(0, 16)}</td></tr>`)}
    </tbody></table><p class="muted small">${count(checkpoint.files.count, "path")}, ${size(checkpoint.files.bytes)}</p></div>`;
}
