// Attempts side by side: what each made, how its check ended, what it measured; one is kept, the others are dropped.
import { ask, post } from "../api.js";
import { ChangedFiles, useChanges } from "../checkpoint/changes.js";
import { Counts } from "../counts.js";
import { clock, count, size, span, took } from "../format.js";
import { event, home, now, refresh } from "../home.js";
import { html, useState } from "../html.js";
import { asProblem, Loaded, useLoad } from "../load.js";
import { Dialog } from "../plans/dialog.js";
import { amend, go, link, route } from "../route.js";
import { Sideways } from "../sideways.js";
import { Command, Failure } from "../states.js";
import { toast } from "../toast.js";

/** Most attempts that are compared at once, as columns. */
const most = 3;

/** The attempts, again when one starts, ends or gets a checkpoint. */
function useAttempts() {
    const changes = event.value && /^(attempt|checkpoint|elsewhere)/.test(event.value.kind) ? event.value.seq : 0;
    return useLoad(() => ask("/attempts"), [changes]);
}

export function Attempts() {
    const load = useAttempts();
    return html`<main class="screen"><div class="inner"><header class="head"><h1>Attempts</h1></header>
        <${Loaded} load=${load}>${(/** @type {any} */ { attempts }) => html`<${Listed} attempts=${attempts} again=${load.again} />`}<//></div></main>`;
}

/** @param {{ attempts: any[], again: () => void }} props */
function Listed({ attempts, again }) {
    const [chosen, setChosen] = useState(/** @type {Set<string>} */ (new Set()));
    const [dropping, setDropping] = useState(/** @type {any[]} */ ([]));
    const open = attempts.filter((one) => one.state === "open");
    const closed = attempts.filter((one) => one.state !== "open").reverse();
    const results = open.filter((one) => chosen.has(one.id) && one.result);
    const compare = () => {
        const ids = results.map((one) => one.result);
        go(["compare", ...(ids.length === 2 ? ids : [results[0].base, ...ids])]);
    };
    const toggle = (/** @type {string} */ id) => {
        const next = new Set(chosen);
        if (!next.delete(id)) next.add(id);
        setChosen(next);
    };
    return html`${open.length === 0 && html`<div class="empty"><h2>No attempt is open</h2><p>Try a task several times at once, each in a copy of its own that costs nothing, and keep the best:</p>
            <${Command} text="safepoint try --attempts 3 -- ./agent.sh" /></div>`}
        ${open.length > 0 && html`<${Table} attempts=${open} chosen=${chosen} toggle=${toggle} drop=${(/** @type {any} */ one) => setDropping([one])} words="Open attempts" />
            <div class="row acts"><button class="main" data-compare disabled=${results.length < 1 || results.length > most} onClick=${compare}>${results.length === 1 ? "Compare with its start" : results.length > most ? `Compare up to ${most}` : "Compare"}</button>
                ${!home.value.read_only && open.length > 1 && html`<button data-drop-all onClick=${() => setDropping(chosen.size ? open.filter((one) => chosen.has(one.id)) : open)}>${chosen.size ? `Drop ${chosen.size}…` : "Drop all…"}</button>`}</div>`}
        ${closed.length > 0 && html`<h2>Kept and dropped</h2><${Table} attempts=${closed} words="Attempts that were kept or dropped" />`}
        ${dropping.length > 0 && html`<${Drop} attempts=${dropping} close=${() => setDropping([])} done=${again} />`}`;
}

/** @param {{ attempts: any[], words: string, chosen?: Set<string>, toggle?: (id: string) => void, drop?: (one: any) => void }} props */
function Table({ attempts, words, chosen, toggle, drop }) {
    const metrics = [...new Set(attempts.flatMap((one) => Object.keys(one.metrics)))].sort();
    const verified = attempts.some((one) => one.verified !== null);
    const tested = attempts.some((one) => one.tests);
    return html`<${Sideways} label=${words}><table class="list attempts"><caption class="unseen">${words}</caption>
        <thead><tr>${toggle && html`<th><span class="unseen">Chosen</span></th>`}<th scope="col">Name</th><th scope="col">State</th><th scope="col" class="number">Exit</th>${verified && html`<th scope="col">Check</th>`}${tested && html`<th scope="col" class="number">Tests</th>`}
            <th scope="col">Changed</th>${metrics.map((name) => html`<th scope="col" class="number">${name}</th>`)}<th scope="col" class="number">Took</th><th scope="col" class="number wide">Disk</th>${drop && html`<th><span class="unseen">Actions</span></th>`}</tr></thead>
        <tbody>${attempts.map((one) => html`<tr key=${one.id} data-attempt=${one.name}>
            ${toggle && html`<td><input type="checkbox" aria-label=${`Compare ${one.name}`} checked=${chosen?.has(one.id)} disabled=${!one.result} onChange=${() => toggle(one.id)} /></td>`}
            <th scope="row"><a href=${link(["attempt", one.id])}>${one.name}</a></th><td><${State} one=${one} /></td><td class="number">${one.exit_status ?? "–"}</td>
            ${verified && html`<td><${Verdict} one=${one} /></td>`}${tested && html`<td class="number">${one.tests ? `${one.tests.passed}/${one.tests.passed + one.tests.failed}` : "–"}</td>`}
            <td><${Counts} files=${one.changes} /></td>${metrics.map((name) => html`<td class="number">${one.metrics[name] ?? "–"}</td>`)}
            <td class="number nowrap">${one.seconds === null ? "–" : one.seconds < 60 ? took(one.seconds * 1000) : span(one.seconds)}</td><td class="number nowrap wide">${one.kind === "overlay" ? size(one.disk_bytes) : "copy"}</td>
            ${drop && html`<td class="nowrap"><${Acts} one=${one} drop=${drop} /></td>`}</tr>`)}</tbody></table><//>`;
}

/** @param {{ one: any, drop: (one: any) => void }} props */
function Acts({ one, drop }) {
    if (home.value.read_only || one.state !== "open") return null;
    const changed = one.changes.added + one.changes.modified + one.changes.removed > 0;
    return html`<button data-keep aria-label=${`Keep ${one.name}…`} disabled=${!changed} onClick=${() => go(["keep", one.name])}>Keep…</button> <button class="plain" data-drop aria-label=${`Drop ${one.name}…`} onClick=${() => drop(one)}>Drop…</button>`;
}

/** @param {{ one: any }} props */
function State({ one }) {
    if (one.state === "open" && one.processes.length > 0) return html`<span class="chip mark">running</span>`;
    return html`<span class=${`chip ${one.state === "kept" ? "good" : ""}`}>${one.state}</span>`;
}

/** @param {{ one: any }} props */
function Verdict({ one }) {
    if (one.verified === null) return html`<span class="muted">–</span>`;
    return html`<span class=${`nowrap ${one.verified ? "good" : "remove"}`}>${one.verified ? "✓ passes" : "✗ fails"}</span>`;
}

/** Closes attempts, one after the other. @param {{ attempts: any[], close: () => void, done: () => void }} props */
function Drop({ attempts, close, done }) {
    const [busy, setBusy] = useState(false);
    const [problem, setProblem] = useState(/** @type {any} */ (null));
    const names = attempts.map((one) => one.name).join(", ");
    const running = attempts.flatMap((one) => one.processes);
    const act = async () => {
        setBusy(true);
        try {
            for (const one of attempts) await post(`/attempts/${encodeURIComponent(one.name)}/drop`);
            toast(`Dropped: ${names}`);
            close();
        } catch (error) {
            setProblem(asProblem(error));
            setBusy(false);
        }
        done();
        refresh().catch(() => {});
    };
    return html`<${Dialog} title=${`Drop ${attempts.length === 1 ? names : count(attempts.length, "attempt")}`} close=${close}>
        ${attempts.length > 1 && html`<p class="mono small">${names}</p>`}
        <p>The last state of each is kept as a checkpoint, and the project is not touched.</p>
        ${running.length > 0 && html`<p>These are ended: ${running.map((/** @type {any} */ one) => `${one.name} (${one.pid})`).join(", ")}</p>`}
        ${problem && html`<${Failure} problem=${problem} />`}
        <div class="row"><button onClick=${close}>Cancel</button><button class="main" data-dropped disabled=${busy} onClick=${act}>${busy ? "Dropping…" : "Drop"}</button></div><//>`;
}

export function Attempt() {
    const id = route.value.names[0] ?? "";
    const load = useAttempts();
    return html`<main class="screen fill"><${Loaded} load=${load}>${(/** @type {any} */ { attempts }) => {
        const one = attempts.find((/** @type {any} */ known) => known.id === id);
        if (!one) return html`<div class="empty"><h1>No such attempt</h1><a href="#/attempts">Attempts</a></div>`;
        return html`<${Shown} key=${id} one=${one} again=${load.again} />`;
    }}<//></main>`;
}

/** @param {{ one: any, again: () => void }} props */
function Shown({ one, again }) {
    const [dropping, setDropping] = useState(false);
    return html`<header class="head"><div class="stack tight"><h1 class="row">${one.name} <${State} one=${one} /></h1>
            <div class="facts small">${one.command.length > 0 && html`<code class="cut">${one.command.join(" ")}</code>`}${one.exit_status !== null && html`<span class=${one.exit_status ? "remove" : ""}>exit ${one.exit_status}</span>`}<${Verdict} one=${one} />
                <${Counts} files=${one.changes} />${Object.entries(one.metrics).map(([name, value]) => html`<span>${name} ${value}</span>`)}<span class="nowrap">started ${clock(one.created_at, now.value)}</span>
                ${one.processes.length > 0 && html`<span>${one.processes.map((/** @type {any} */ process) => `${process.name} (${process.pid})`).join(", ")}</span>`}</div></div>
            <div class="row">${one.result && html`<button onClick=${() => go(["compare", one.result, "present"])} disabled=${home.value.read_only}>Compare with the project now</button>`}<${Acts} one=${one} drop=${() => setDropping(true)} /></div></header>
        <div class="tabbed">${one.result ? html`<${Changes} from=${one.base} to=${one.result} />` : html`<div class="empty"><h2>Nothing was captured yet</h2><p>Its state is captured when its command ends:</p><${Command} text=${`safepoint attempt exec ${one.name} -- bash`} /></div>`}</div>
        ${dropping && html`<${Drop} attempts=${[one]} close=${() => setDropping(false)} done=${again} />`}`;
}

/** @param {{ from: string, to: string }} props */
function Changes({ from, to }) {
    const changes = useChanges(from, to);
    return html`<${ChangedFiles} from=${from} to=${to} changes=${changes} chosen=${route.value.query.path ?? ""} choose=${(/** @type {string} */ path) => amend({ path })} empty="It changed nothing" />`;
}
