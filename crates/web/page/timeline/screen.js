// The timeline: every checkpoint of the workspace, newest first.
import { ask } from "../api.js";
import { count } from "../format.js";
import { event, home, link as connection, now, recall, remember } from "../home.js";
import { html, signal, useEffect, useRef, useState } from "../html.js";
import { useKeys } from "../keys.js";
import { Failure, NoCheckpoint } from "../states.js";
import { asProblem } from "../load.js";
import { go } from "../route.js";
import { say } from "../say.js";
import { undoNow } from "../rollback/act.js";
import { Windowed } from "../windowed.js";
import { marks } from "../search/marks.js";
import { Now } from "./now.js";
import { Pages } from "./pages.js";
import { PickBar, picked, togglePick } from "./pick.js";
import { answerable } from "./answers.js";
import { filtered, Filters, only } from "./filters.js";
import { TimelineRow } from "./row.js";
import { Strip } from "./strip.js";

/** The focused row outlives the screen, so that Back returns to it. */
const focused = signal(0);
/** @type {import("../vendor/signals.js").Signal<{ from: number, before: number, words: string } | null>} */
const range = signal(null);

/** Events after which rows are read again. */
const matters = /^(checkpoint|rollback|turn|pin|prune|delete|workspace)/;

/** @param {string} query */
function useMedia(query) {
    const [on, setOn] = useState(() => matchMedia(query).matches);
    useEffect(() => {
        const media = matchMedia(query);
        const change = () => setOn(media.matches);
        media.addEventListener("change", change);
        return () => media.removeEventListener("change", change);
    }, []);
    return on;
}

/** The pages for the filter, read again when events say so. */
function usePages() {
    const [, redraw] = useState(0);
    const view = useRef({ first: 0, last: 40 });
    const filter = { ...(range.value ? { from: range.value.from, before: range.value.before } : {}), ...filtered() };
    const text = JSON.stringify(filter);
    const pages = useRef(/** @type {Pages | null} */ (null));
    const of = useRef("");
    if (pages.current === null || of.current !== text) {
        pages.current = new Pages(filter, () => redraw((old) => old + 1));
        of.current = text;
    }
    const current = pages.current;
    useEffect(() => current.want(view.current.first, view.current.last), [current]);
    const latest = useRef(current);
    latest.current = current;
    const timer = useRef(0);
    useEffect(() => () => clearTimeout(timer.current), []);
    useEffect(() => {
        if (!event.value || !matters.test(event.value.kind) || timer.current) return;
        // A burst of events is one reading.
        timer.current = window.setTimeout(async () => {
            timer.current = 0;
            const current = latest.current;
            const before = current.total ?? 0;
            try {
                await current.again(view.current.first, view.current.last);
            } catch {
                return;
            }
            const grown = (current.total ?? 0) - before;
            if (grown > 0) {
                say(`${count(grown, "new checkpoint")}`);
                // The same row stays under the eye when new rows come above it.
                if (focused.peek() > 0) focused.value += grown;
            }
        }, 200);
    }, [event.value?.seq]);
    return { pages: current, view };
}

/** Rollbacks by the safety checkpoint taken for them. What `undo` and `redo` would answer is marked. */
function useRollbacks() {
    const [made, setMade] = useState(/** @type {Map<string, any>} */ (new Map()));
    useEffect(() => {
        ask("/rollbacks", { query: { limit: 500 } }).then(({ rollbacks }) => {
            const done = rollbacks.filter((/** @type {any} */ one) => one.state === "done" || one.state === "settled");
            const next = answerable(done);
            const byId = new Map(rollbacks.map((/** @type {any} */ one) => [one.id, one]));
            /** The rollback that undos and redos are about. @param {any} one @returns {any} */
            const first = (one) => (byId.has(one.answers) ? first(byId.get(one.answers)) : one);
            setMade(new Map(done.filter((/** @type {any} */ one) => one.safety_checkpoint)
                .map((/** @type {any} */ one) => [one.safety_checkpoint, { ...one, first: first(one), undo: one.id === next.undo, redo: one.id === next.redo, last: one === done[0] }])));
        }, () => {});
    }, [home.value?.event]);
    return made;
}

/** Rows that came since the last visit, counted once when the page opens. */
const visit = signal(/** @type {{ seq: number, at: string, fresh: number } | null} */ (null));

function useVisit() {
    useEffect(() => {
        if (visit.peek()) return;
        const last = recall();
        ask("/checkpoints", { query: { limit: 1 } }).then(async (newest) => {
            const seq = newest.checkpoints[0]?.seq ?? 0;
            const fresh = last && seq > last.seq ? (await ask("/checkpoints", { query: { from: last.seq + 1, limit: 1 } })).total : 0;
            visit.value = { seq: last?.seq ?? 0, at: last?.at ?? "", fresh };
            remember(seq);
        }, () => {});
    }, []);
    return visit.value;
}

/** The last good state with its row, for title and tests. */
function useGood() {
    const good = home.value?.last_good;
    const [row, setRow] = useState(/** @type {any} */ (null));
    useEffect(() => {
        if (!good) return;
        ask(`/checkpoints/${good.checkpoint}`).then((answer) => setRow(answer.row), () => {});
    }, [good?.checkpoint, home.value?.event]);
    return good ? { ...good, row: row?.checkpoint.id === good.checkpoint ? row : null } : null;
}

const inRows = () => !!document.activeElement?.closest(".trow");
/** @param {string} id */
const open = (id) => go(["checkpoint", id]);
/** @param {string} id */
const roll = (id) => go(["rollback", id]);

export function Timeline() {
    const { pages, view } = usePages();
    const made = useRollbacks();
    const seen = useVisit();
    const good = useGood();
    const narrow = useMedia("(max-width: 640px)");
    const [jump, setJump] = useState(0);
    const moved = useRef(false);
    const height = narrow ? 52 : 28;
    const rows = pages.total ?? 0;
    const at = Math.min(focused.value, Math.max(0, rows - 1));
    /** @param {number} to */
    const move = (to) => {
        moved.current = true;
        focused.value = Math.max(0, Math.min(rows - 1, to));
        setJump((old) => old + 1);
    };
    const current = () => pages.at(at)?.row;
    useKeys({
        // The first key only goes to the row that is marked.
        j: () => move(inRows() ? at + 1 : at),
        k: () => move(inRows() ? at - 1 : at),
        "]": () => move(at - 1),
        "[": () => move(at + 1),
        Enter: (pressed) => { const row = current(); if (row && !(/** @type {HTMLElement} */ (pressed.target)).closest("button, a, [role=option]")) open(row.checkpoint.id); else /** @type {HTMLElement} */ (pressed.target).click(); },
        r: () => { const row = current(); if (row && !home.value.read_only) roll(row.checkpoint.id); },
        c: () => { const row = current(); if (row) togglePick(row.checkpoint.id, row.checkpoint.label ?? row.checkpoint.id.slice(0, 9)); },
    });
    useEffect(() => {
        if (!moved.current) return;
        const row = /** @type {HTMLElement | null} */ (document.querySelector(`.trow[data-index="${at}"]`));
        row?.focus({ preventScroll: true });
    }, [at, jump]);
    if (pages.problem && pages.total === null) return html`<main class="screen"><div class="inner"><${Failure} problem=${asProblem(pages.problem)} again=${() => pages.again(0, 40)} /></div></main>`;
    const isFiltered = range.value !== null || Object.keys(filtered()).length > 0;
    if (pages.total === 0 && !isFiltered) return html`<main class="screen"><${NoCheckpoint} taken=${() => pages.again(0, 40)} /></main>`;
    const width = pages.width(view.current.first, Math.min(view.current.last, rows));
    const acts = { open, roll, pick: togglePick, focus: (/** @type {number} */ index) => { focused.value = index; },
        // Only the last one is undone at once: an older one is shown first.
        undo: (/** @type {any} */ made) => { if (made.last) undoNow(made.id); else go(["undo"]); }, redo: () => go(["redo"]) };
    const row = (/** @type {number} */ index) => {
        const placed = pages.at(index);
        const id = placed?.row.checkpoint.id ?? "";
        return html`<${TimelineRow} key=${index} placed=${placed} index=${index} height=${height} width=${width} focused=${index === at} now=${now.value}
            head=${pages.head} good=${good} made=${made.get(id)} picked=${picked.value.some((one) => one.id === id)} mark=${marks.value.get(id) ?? ""}
            seen=${seen?.fresh ? seen.seq : 0} acts=${acts} />`;
    };
    return html`<main class="screen fill timeline" style=${{ "--lanes": `${Math.min(width, 6) * 14 + 6}px` }}>
        <h1 class="unseen">Timeline</h1>
        <${Now} good=${good} fresh=${seen?.fresh ?? 0} since=${seen?.at ?? null} jump=${() => move((seen?.fresh ?? 1) - 1)} />
        <${Strip} ready=${pages.total !== null} version=${home.value?.event} range=${range.value} choose=${(/** @type {any} */ next) => { range.value = next; focused.value = 0; }} />
        <div class="filters row">
            <span class="muted small" data-total>${range.value ? html`${range.value.words} · ` : ""}${count(rows, "checkpoint")}</span>
            ${isFiltered && html`<button class="plain small" onClick=${() => { range.value = null; only.value = { agent: "", session: "", asked: false }; focused.value = 0; }}>Show all</button>`}
            <${Filters} changed=${() => { focused.value = 0; }} />
        </div>
        <${Windowed} rows=${rows} height=${height} row=${row} label="Checkpoints, newest first" cls="rows" columns=${8} focus=${at} jump=${jump}
            onWindow=${(/** @type {number} */ first, /** @type {number} */ last) => { view.current = { first, last }; if (connection.value !== "locked") pages.want(first, last); }}
            onKeyDown=${(/** @type {KeyboardEvent} */ pressed) => arrows(pressed, at, rows, move)} head=${html`<${Heads} />`} />
        <${PickBar} />
    </main>`;
}

function Heads() {
    return html`<div role="rowgroup" class="heads"><div role="row" class="trow head-row small muted">
        <span role="columnheader"><span class="unseen">Branch</span></span><span role="columnheader">When</span><span role="columnheader">Checkpoint</span>
        <span role="columnheader">Changed</span><span role="columnheader">Tests</span><span role="columnheader">Agent</span><span role="columnheader">Session</span>
        <span role="columnheader"><span class="unseen">Actions</span></span></div></div>`;
}

/** @param {KeyboardEvent} event @param {number} at @param {number} rows @param {(to: number) => void} move */
function arrows(event, at, rows, move) {
    const steps = /** @type {Record<string, number>} */ ({ ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 20, PageUp: at - 20, Home: 0, End: rows - 1 });
    const to = steps[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move(to);
}
