// Any two states side by side; up to four as columns against the first.
import { ask } from "../api.js";
import { Sign } from "../counts.js";
import { count, pathText, short, whole } from "../format.js";
import { home } from "../home.js";
import { html, useEffect, useState } from "../html.js";
import { useKeys } from "../keys.js";
import { asProblem } from "../load.js";
import { amend, go, link, route } from "../route.js";
import { Failure } from "../states.js";
import { Sideways } from "../sideways.js";
import { titleOf } from "../timeline/words.js";
import { ChangedFiles, useChanges } from "../checkpoint/changes.js";
import { FileDifference } from "../diff/file.js";

/** The rows of the states; the current state has none. @param {string[]} ids */
function useRows(ids) {
    const [rows, setRows] = useState(/** @type {Map<string, any>} */ (new Map()));
    useEffect(() => {
        for (const id of ids) if (id !== "present") ask(`/checkpoints/${encodeURIComponent(id)}`).then((answer) => setRows((old) => new Map(old).set(id, { ...answer.row, attempt: answer.attempt })), () => {});
    }, [ids.join()]);
    return rows;
}

/** @param {{ id: string, row: any }} props */
function Name({ id, row }) {
    if (id === "present") return html`<span class="strong">the current state</span>`;
    if (row?.attempt) return html`<span class="strong">${row.attempt}</span><span class="muted small"> ${titleOf(row)}</span>`;
    return html`<a class="strong" href=${link(["checkpoint", id])}>${row ? titleOf(row) : short(id)}</a>${row && html`<span class="muted small"> ${row.agent ?? ""} ${whole(row.checkpoint.created_at)}</span>`}`;
}

export function Compare() {
    const ids = route.value.names.slice(0, 4);
    const rows = useRows(ids);
    if (ids.length < 2) return html`<main class="screen"><div class="empty"><h1>Compare</h1><p>Choose two to four checkpoints in the timeline: press <kbd>c</kbd> or ⇄ on each.</p><a href="#/timeline">Timeline</a></div></main>`;
    return html`<main class="screen fill">${ids.length === 2 ? html`<${Two} key=${ids.join()} ids=${ids} rows=${rows} />` : html`<${Many} key=${ids.join()} ids=${ids} rows=${rows} />`}</main>`;
}

/** @param {{ ids: string[], rows: Map<string, any> }} props */
function Two({ ids, rows }) {
    const [from = "", to = ""] = ids;
    const changes = useChanges(from, to);
    /** Checkpoints of attempts are kept by their attempt, and not rolled back to. @param {string} id */
    const canRoll = (id) => !home.value.read_only && id !== "present" && rows.has(id) && !rows.get(id).attempt;
    useKeys({ r: () => { if (canRoll(from)) go(["rollback", from]); } });
    return html`<header class="head"><div class="stack tight"><h1>Only what differs</h1>
            <p><${Name} id=${from} row=${rows.get(from)} /> <span aria-label="to">→</span> <${Name} id=${to} row=${rows.get(to)} /></p><p class="muted small">${changes.loading ? "Comparing" : count(changes.total, "path")}</p></div>
        <div class="row">${to !== "present" && html`<button onClick=${() => go(["compare", to, from])}>Swap</button>`}
            ${canRoll(from) && html`<button onClick=${() => go(["rollback", from])}>Roll back to the first…</button>`}
            ${canRoll(to) && html`<button onClick=${() => go(["rollback", to])}>Roll back to the second…</button>`}</div></header>
        <div class="tabbed"><${ChangedFiles} from=${from} to=${to} changes=${changes} chosen=${route.value.query.path ?? ""} choose=${(/** @type {string} */ path) => amend({ path })} empty="Equal" /></div>`;
}

const pathsAsked = 1000;

/** @param {{ ids: string[], rows: Map<string, any> }} props */
function Many({ ids, rows }) {
    const [first = "", ...others] = ids;
    const [columns, setColumns] = useState(/** @type {Map<string, any>} */ (new Map()));
    const [problem, setProblem] = useState(/** @type {any} */ (null));
    useEffect(() => {
        for (const id of others) ask("/diff", { query: { from: first, to: id, limit: pathsAsked } }).then((answer) => setColumns((old) => new Map(old).set(id, answer)), (error) => setProblem(asProblem(error)));
    }, []);
    /** @type {Map<string, any>} */
    const paths = new Map();
    for (const id of others) for (const change of columns.get(id)?.changes ?? []) paths.set(pathText(change.path), change.path);
    const [chosen, setChosen] = useState(/** @type {{ path: any, id: string } | null} */ (null));
    if (problem) return html`<div class="inner"><${Failure} problem=${problem} /></div>`;
    const cut = others.some((id) => columns.get(id)?.next != null);
    return html`<header class="head"><div class="stack tight"><h1>Only what differs</h1><p>Against <${Name} id=${first} row=${rows.get(first)} /></p><p class="muted small">${count(paths.size, "path")}${cut ? `, the first ${pathsAsked.toLocaleString("en")} of each` : ""}</p></div></header>
        <div class="tabbed many"><${Sideways} label="Paths and states"><table class="list matrix"><caption class="unseen">Paths that differ, by state</caption>
            <thead><tr><th scope="col">Path</th>${others.map((id, index) => html`<th scope="col"><${Name} id=${id} row=${rows.get(id)} />${twin(columns, others, index) && html`<span class="chip">equal to ${twin(columns, others, index) === "present" ? "the current state" : rows.get(twin(columns, others, index) ?? "") ? titleOf(rows.get(twin(columns, others, index) ?? "")) : short(twin(columns, others, index) ?? "")}</span>`}</th>`)}</tr></thead>
            <tbody>${[...paths].sort(([a], [b]) => (a < b ? -1 : 1)).map(([text, path]) => html`<tr key=${text}><th scope="row" class="mono">${text}</th>${others.map((id) => {
                const change = columns.get(id)?.changes.find((/** @type {any} */ one) => pathText(one.path) === text);
                return html`<td>${change ? html`<button class="plain" aria-pressed=${chosen?.id === id && pathText(chosen.path) === text} aria-label=${`${change.change}: ${text}`} onClick=${() => setChosen({ path, id })}><${Sign} change=${change.change} /> ${change.change}</button>` : html`<span class="muted">equal</span>`}</td>`;
            })}</tr>`)}</tbody></table><//>
            ${chosen && html`<div class="pane"><${FileDifference} from=${first} to=${chosen.id} path=${chosen.path} ids=${{ from: first, to: chosen.id }} /></div>`}
        </div>`;
}


/** An earlier column with the same content, if there is one. @param {Map<string, any>} columns @param {string[]} ids @param {number} at @returns {string | null} */
function twin(columns, ids, at) {
    const content = (/** @type {string} */ id) => {
        const answer = columns.get(id);
        return answer && answer.next == null ? JSON.stringify(answer.changes.map((/** @type {any} */ one) => [one.path, one.change, one.new?.hash, one.new?.mode, one.new?.target])) : null;
    };
    const own = content(ids[at] ?? "");
    return own === null ? null : ids.slice(0, at).find((id) => content(id) === own) ?? null;
}
