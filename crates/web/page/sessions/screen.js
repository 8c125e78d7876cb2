// Sessions as turns: what was asked, what changed, what is not covered.
import { ask } from "../api.js";
import { Counts } from "../counts.js";
import { clock, count, span, whole } from "../format.js";
import { event, home, now, recall } from "../home.js";
import { html, useState } from "../html.js";
import { Loaded, useLoad } from "../load.js";
import { go, link } from "../route.js";
import { Command } from "../states.js";

const turnsAsked = 1000;

/** Sessions and turns together; a session may have only one of both. */
async function read() {
    const [{ sessions }, { turns, next }] = await Promise.all([ask("/sessions"), ask("/turns", { query: { limit: turnsAsked } })]);
    /** @type {Map<string, { id: string, record: any, turns: any[] }>} */
    const all = new Map();
    for (const turn of turns) {
        const one = all.get(turn.session_id) ?? { id: turn.session_id, record: null, turns: /** @type {any[]} */ ([]) };
        one.turns.push(turn);
        all.set(turn.session_id, one);
    }
    for (const record of sessions) {
        const one = all.get(record.session_id) ?? { id: record.session_id, record: null, turns: [] };
        one.record = record;
        all.set(record.session_id, one);
    }
    const newest = (/** @type {any} */ one) => one.turns[0]?.started ?? one.record?.updated_at ?? "";
    return { sessions: [...all.values()].sort((a, b) => (newest(a) < newest(b) ? 1 : -1)), next };
}

export function Sessions() {
    const changes = event.value && /^(turn|session|checkpoint)/.test(event.value.kind) ? event.value.seq : 0;
    const load = useLoad(read, [changes]);
    return html`<main class="screen"><div class="inner"><header class="head"><h1>Sessions</h1></header>
        <${Loaded} load=${load}>${(/** @type {any} */ { sessions, next }) => html`
            ${sessions.length === 0 && html`<div class="empty"><h2>No session yet</h2><p>A coding agent that Safepoint is installed for records each prompt as a turn:</p><${Command} text="safepoint install" /></div>`}
            <div class="cards">${sessions.map((/** @type {any} */ one, /** @type {number} */ index) => html`<${Session} key=${one.id} one=${one} first=${index === 0} />`)}</div>
            ${next !== null && html`<p class="muted small">The newest ${turnsAsked.toLocaleString("en")} turns.</p>`}
        `}<//></div></main>`;
}

/** @type {Record<string, string>} */
const tones = { completed: "good", failed: "bad", paused: "warn" };

/** @param {{ one: { id: string, record: any, turns: any[] }, first: boolean }} props */
function Session({ one, first }) {
    const [open, setOpen] = useState(first);
    const { record, turns } = one;
    const seen = recall()?.at ?? "";
    const fresh = turns.filter((turn) => seen && turn.started > seen).length;
    const uncovered = turns.filter((turn) => turn.uncovered.length > 0).length;
    const files = turns.reduce((sum, turn) => ({ added: sum.added + (turn.files?.added ?? 0), modified: sum.modified + (turn.files?.modified ?? 0), removed: sum.removed + (turn.files?.removed ?? 0) }), { added: 0, modified: 0, removed: 0 });
    const last = turns[turns.length - 1];
    const seconds = turns.length ? (Date.parse(turns[0].ended ?? turns[0].started) - Date.parse(last.started)) / 1000 : (record?.statistics.duration_ms ?? 0) / 1000;
    // A session that only hooks know stays as it was made; its turns say more.
    const status = record && (record.status !== "initializing" || turns.length === 0) ? record.status : turns[0] && !turns[0].ended ? "running" : "";
    const title = record?.request ?? last?.label ?? one.id;
    return html`<section class="card session-card">
        <h2 class="row spread"><button class="plain title-button" aria-expanded=${open} onClick=${() => setOpen(!open)}><span aria-hidden="true">${open ? "▾" : "▸"}</span> <span class="cut">${title}</span></button>
            ${status && html`<span class=${`chip ${tones[status] ?? "mark"}`}>${status.replaceAll("_", " ")}</span>`}</h2>
        <div class="in facts-line row small"><span>${count(turns.length, "turn")}</span>${fresh > 0 && html`<span class="strong">${fresh} new since you last looked</span>`}${turns[0] && html`<span>${turns[0].agent}</span>`}
            <span class="muted">${turns.length ? `${whole(last.started)}, ${span(seconds)}` : record ? whole(record.created_at) : ""}</span><${Counts} files=${files} />
            ${record && html`<span class=${record.statistics.tasks_failed ? "remove" : "muted"}>${count(record.statistics.tasks_failed, "failure")}</span><span>${count(record.statistics.decisions_made, "decision")}</span><span>${count(record.statistics.checkpoints_created, "checkpoint")}</span>`}
            ${uncovered > 0 && html`<span class="chip warn">${count(uncovered, "turn")} partly covered</span>`}
            <${Sizes} turns=${turns} /></div>
        ${open && turns.length > 0 && html`<${Turns} turns=${turns} seen=${seen} />`}
    </section>`;
}

/** A bar for each turn, the oldest first: how many paths it changed. @param {{ turns: any[] }} props */
function Sizes({ turns }) {
    const shown = turns.slice(0, 60).reverse();
    const sizes = shown.map((turn) => (turn.files ? turn.files.added + turn.files.modified + turn.files.removed : 0));
    const most = Math.max(1, ...sizes);
    return html`<svg class="sizes wide" width=${shown.length * 5} height="18" aria-hidden="true">${sizes.map((size, index) => html`<rect x=${index * 5} width="4" y=${18 - Math.max(2, Math.sqrt(size / most) * 18)} height="18" />`)}</svg>`;
}

/** @param {{ turns: any[], seen: string }} props */
function Turns({ turns, seen }) {
    const [most, setMost] = useState(100);
    return html`<div class="scroll" tabindex="0" role="region" aria-label="Turns"><table class="list turns"><caption class="unseen">Turns, the newest first</caption>
        <thead><tr><th>Turn</th><th>Prompt</th><th>Changed</th><th class="number wide">Commands</th><th class="wide">When</th><th><span class="unseen">Actions</span></th></tr></thead><tbody>
        ${turns.slice(0, most).map((turn) => html`<tr key=${turn.turn} class=${seen && turn.started > seen ? "fresh" : ""}>
            <td class="mono">${turn.turn}</td><td class="prompt">${turn.after || turn.before ? html`<a href=${link(["checkpoint", turn.after ?? turn.before])}>${turn.label || "(no prompt)"}</a>` : turn.label || "(no prompt)"}
                ${turn.uncovered.length > 0 && html` <span class="chip warn" title=${turn.uncovered.join("\n")}>partly covered: ${turn.uncovered[0]}</span>`}${!turn.ended && html` <span class="chip mark">running</span>`}</td>
            <td><${Counts} files=${turn.files} /></td><td class="number wide">${turn.commands}</td><td class="nowrap muted small wide">${clock(turn.started, now.value)}</td>
            <td>${!home.value.read_only && turn.ended && turn.before && html`<button class="plain" aria-label=${`Take back turn ${turn.turn}…`} title="Take back…" onClick=${() => go(["turn", String(turn.turn)])}><span aria-hidden="true">↶</span><span class="wide">Take back…</span></button>`}</td></tr>`)}
    </tbody></table>${turns.length > most && html`<button onClick=${() => setMost(most + 200)}>${turns.length - most} older</button>`}</div>`;
}
