// One row of the timeline.
import { Counts } from "../counts.js";
import { clock, whole } from "../format.js";
import { home } from "../home.js";
import { html } from "../html.js";
import { Graph } from "./graph.js";
import { nameOf, requestOf } from "./names.js";
import { goodWhy, idleWords, laneWords, testsOf, titleOf } from "./words.js";

/**
 * @typedef {object} RowProps
 * @property {import("./pages.js").Placed | null} placed
 * @property {number} index
 * @property {number} height
 * @property {number} width lanes
 * @property {boolean} focused
 * @property {Date} now
 * @property {string | null} head
 * @property {{ checkpoint: string, why: string } | null} good
 * @property {any} made the rollback that this safety checkpoint was taken for
 * @property {boolean} picked
 * @property {string} mark of a search for a good state
 * @property {number} seen the newest seq of the last visit
 * @property {{ open: (id: string) => void, roll: (id: string) => void, pick: (id: string, title: string) => void, focus: (index: number) => void, undo: (made: any) => void, redo: () => void }} acts
 */

/** @param {RowProps} props */
export function TimelineRow(props) {
    const { placed, index, height, focused } = props;
    if (!placed) {
        return html`<div class="trow waiting" role="row" aria-rowindex=${index + 1} style=${{ height: `${height}px` }} key=${index}>
            <span role="gridcell"></span><span role="gridcell" class="muted">…</span></div>`;
    }
    return html`<div class=${rowClass(props)} role="row" key=${index} aria-rowindex=${index + 1} aria-selected=${focused}
        data-index=${index} data-id=${placed.row.checkpoint.id} tabindex=${focused ? 0 : -1} style=${{ height: `${height}px` }}
        onFocus=${() => props.acts.focus(index)} onClick=${(/** @type {any} */ event) => { if (!event.target.closest("button")) props.acts.open(placed.row.checkpoint.id); }}>
        <${Place} ...${props} />
        <${Title} ...${props} />
        <${Facts} ...${props} />
        <${Actions} ...${props} />
    </div>`;
}

/** @param {RowProps} props */
function rowClass({ placed, focused, picked, head, seen }) {
    const { row, newSession } = /** @type {import("./pages.js").Placed} */ (placed);
    const { checkpoint } = row;
    return ["trow", focused && "focused", picked && "picked", checkpoint.id === head && "here", checkpoint.role && "aside",
        newSession && checkpoint.session_id && "begins", seen > 0 && row.seq > seen && "fresh"].filter(Boolean).join(" ");
}

/** Lane and time. @param {RowProps} props */
function Place({ placed, height, width, now, head }) {
    const { row, lane, idle } = /** @type {import("./pages.js").Placed} */ (placed);
    const { checkpoint } = row;
    const gap = idleWords(idle);
    return html`<span role="gridcell" class="lane"><${Graph} lane=${lane} height=${height} width=${width} kind=${checkpoint.role ? "safety" : "taken"} here=${checkpoint.id === head} />
            <span class="unseen">${laneWords(lane, checkpoint.parent)}</span></span>
        <span role="gridcell" class="when mono" title=${`${whole(checkpoint.created_at)}${gap ? `, after ${gap}` : ""}`}>${clock(checkpoint.created_at, now)}</span>`;
}

/** @param {RowProps} props */
function Title({ placed, head, good, made, mark }) {
    const { row, idle } = /** @type {import("./pages.js").Placed} */ (placed);
    const { checkpoint, turn } = row;
    const isGood = good !== null && good.checkpoint === checkpoint.id;
    const gap = idleWords(idle);
    return html`<span role="gridcell" class="title">
        ${turn && checkpoint.label && html`<span class="turn mono">${turn.side === "before" ? "‹" : ""}${turn.number}</span>`}
        <span class="cut" title=${titleOf(row)}>${made ? html`<span aria-hidden="true">↶ </span>${madeWords(made)}` : titleOf(row)}</span>
        ${checkpoint.id === head && html`<span class="chip mark" title="The position of the workspace: what it was last equal to">here</span>`}
        ${isGood && good.why !== "position" && html`<span class="chip good" title=${goodWhy[good.why]}>★ last good</span>`}
        ${checkpoint.pinned && html`<span class="chip">pinned</span>`}
        ${mark && html`<span class=${`chip ${mark === "passes" ? "good" : mark === "fails" ? "bad" : ""}`}>${mark}</span>`}
        ${checkpoint.rollback_count > 0 && html`<span class="chip wide" title="Rollbacks to it">↶ ${checkpoint.rollback_count}</span>`}
        ${gap && html`<span class="chip wide idle">after ${gap}</span>`}
    </span>`;
}

/** @param {any} made */
function madeWords(made) {
    if (made.verb === "apply") return "before a plan was applied";
    const verb = made.verb === "rollback" ? "" : `${made.verb} of the `;
    return `before the ${verb}rollback to ${nameOf(made.first.to)}`;
}

/** @param {RowProps} props */
function Facts({ placed }) {
    const { row, newSession } = /** @type {import("./pages.js").Placed} */ (placed);
    const { checkpoint, agent } = row;
    const tests = testsOf(checkpoint);
    return html`<span role="gridcell" class="files"><${Counts} files=${checkpoint.files} /></span>
        <span role="gridcell" class="tests small">${tests && (tests.failing > 0
            ? html`<span class="remove">✗ ${tests.failing} <span class="word">failing</span></span>`
            : html`<span class="good">✓ ${tests.passing} <span class="word">passing</span></span>`)}
            ${checkpoint.warnings.length > 0 && html`<span class="chip warn" title=${checkpoint.warnings.join("\n")}>partly covered</span>`}</span>
        <span role="gridcell" class=${`agent cut small ${agent ? "" : "muted"}`}>${checkpoint.role ? html`<span class="word">safety</span>` : agent ?? (checkpoint.plan_id ? `plan ${checkpoint.plan_id}` : "by hand")}</span>
        <span role="gridcell" class=${`session cut small ${newSession ? "strong" : "muted"}`} title=${checkpoint.session_id ?? ""}>${requestOf(checkpoint.session_id)}</span>`;
}

/** @param {RowProps} props */
function Actions({ placed, focused, picked, made, acts }) {
    const { row } = /** @type {import("./pages.js").Placed} */ (placed);
    const { checkpoint } = row;
    const title = titleOf(row);
    const tab = focused ? 0 : -1;
    return html`<span role="gridcell" class=${`acts ${made?.undo || made?.redo ? "more" : ""}`}>
        ${made?.undo && !home.value.read_only && html`<button class="plain" tabindex=${tab} onClick=${() => acts.undo(made)}>${made.last ? "Undo" : "Undo…"}</button>`}
        ${made?.redo && !home.value.read_only && html`<button class="plain" tabindex=${tab} onClick=${acts.redo}>Redo…</button>`}
        <button class="plain icon" tabindex=${tab} aria-pressed=${picked} aria-label=${`Compare ${title}`} title="Compare (c)" onClick=${() => acts.pick(checkpoint.id, title)}>⇄</button>
        ${!home.value.read_only && html`<button class="plain icon" tabindex=${tab} aria-label=${`Preview a rollback to ${title}`} title="Preview a rollback (r)" onClick=${() => acts.roll(checkpoint.id)}>↶</button>`}
    </span>`;
}
