// Consequences of a preview besides its paths: what is safe, what stays, what runs, what is not undone.
import { count, pathText } from "../format.js";
import { ask } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { link } from "../route.js";
import { nameOf } from "../timeline/names.js";

const shownPaths = 12;

/** @param {{ paths: any[] }} props */
export function PathList({ paths }) {
    return html`<ul class="paths mono">${paths.slice(0, shownPaths).map((path) => html`<li class="cut">${pathText(path)}</li>`)}
        ${paths.length > shownPaths && html`<li class="muted">and ${(paths.length - shownPaths).toLocaleString("en")} more</li>`}</ul>`;
}

/** Links to what a turn changed, and to what changed since. @param {{ turn: number }} props */
export function BothDiffs({ turn }) {
    const [record, setRecord] = useState(/** @type {any} */ (null));
    useEffect(() => {
        ask("/turns", { query: { before: turn + 1, limit: 1 } }).then(({ turns }) => setRecord(turns[0] ?? null), () => {});
    }, [turn]);
    if (record?.turn !== turn || !record.after) return null;
    return html`<p class="row small"><a href=${link(["checkpoint", record.after])}>changes of the turn</a><a href=${link(["compare", record.after, "present"])}>changes since</a></p>`;
}

/** @param {{ preview: any, turn: number | null, guidance: string, replaceLater: (() => void) | null }} props */
export function Effects({ preview, turn, guidance, replaceLater }) {
    const { rollback, overwritten, left, position } = preview;
    const blocked = (rollback.together ?? [rollback]).flatMap((/** @type {any} */ part) => part.blocked ?? []);
    const kept = (rollback.together ?? [rollback]).flatMap((/** @type {any} */ part) => (part.changed_paths ?? []).filter((/** @type {any} */ one) => one.action === "kept"));
    return html`<div class="effects stack">
        ${overwritten.length > 0 && html`<section data-effect="overwritten"><h3>Your ${count(overwritten.length, "change")} since ${position ? html`<a href=${link(["checkpoint", position])}>${nameOf(position)}</a>` : "the last checkpoint"}: kept in the safety checkpoint ${position && html`<a href=${link(["compare", position, "present"])} aria-label="See your changes">see</a>`}</h3>
            <${PathList} paths=${overwritten} /></section>`}
        ${left.length > 0 && html`<section data-effect="left"><h3>Stays: ${count(left.length, "path")} changed again since</h3><${PathList} paths=${left} />${turn !== null && html`<${BothDiffs} turn=${turn} />`}
            ${replaceLater && html`<div><button onClick=${replaceLater}>Take these back too…</button></div>`}</section>`}
        ${kept.length + blocked.length > 0 && html`<section data-effect="kept"><h3>Stays in place</h3><ul class="paths">
            ${kept.map((/** @type {any} */ one) => html`<li><span class="mono">${pathText(one.path)}</span> <span class="muted small">holds what was never captured</span></li>`)}
            ${blocked.map((/** @type {any} */ one) => html`<li><span class="mono">${pathText(one.path)}</span> <span class="muted small">${one.why}</span></li>`)}</ul></section>`}
        ${rollback.undone?.length > 0 && html`<section data-effect="runs"><h3>Runs first</h3><ol class="paths">
            ${rollback.undone.map((/** @type {any} */ one) => html`<li><code>${one.command}</code> <span class="muted small">undoes ${one.step} of ${one.plan}${one.ran ? ", has run" : ""}</span></li>`)}</ol></section>`}
        ${rollback.effects_not_undone?.length > 0 && html`<section data-effect="not-undone"><h3 class="modify">Not undone</h3><ul class="paths">
            ${rollback.effects_not_undone.map((/** @type {any} */ one) => html`<li>${one.step} of ${one.plan} <span class="muted small">${one.why}</span></li>`)}</ul></section>`}
        ${rollback.git && [rollback.git].flat().length > 0 && html`<section data-effect="git"><h3>Git</h3><ul class="paths">
            ${[rollback.git].flat().map((/** @type {any} */ one) => html`<li>HEAD ${(one.from ?? "none").slice(0, 9)} → ${(one.to ?? "none").slice(0, 9)}${one.branch ? ` on ${one.branch}` : ", detached"}${one.uncommitted ? html`<span class="muted small">; replaces ${one.uncommitted}, in the safety checkpoint</span>` : ""}</li>`)}</ul></section>`}
        <${AttemptEffects} attempt=${preview.attempt} />
        <${PlanEffects} rollback=${rollback} />
        ${guidance && html`<section data-effect="guidance"><h3>Guidance for the next attempt, kept as a decision</h3><p>${guidance}</p></section>`}
    </div>`;
}

/** @param {{ attempt: any }} props */
function AttemptEffects({ attempt }) {
    if (!attempt) return null;
    return html`${attempt.merged.length > 0 && html`<section data-effect="merged"><h3>Merged line by line with changes of the project</h3><${PathList} paths=${attempt.merged} /></section>`}
        ${attempt.changed_in_project.length > 0 && html`<section data-effect="stays"><h3>Stays: ${count(attempt.changed_in_project.length, "path")} changed in the project since the start</h3><${PathList} paths=${attempt.changed_in_project} /></section>`}
        ${attempt.ends.length > 0 && html`<section data-effect="ends"><h3>Ends first</h3><ul class="paths">${attempt.ends.map((/** @type {any} */ one) => html`<li>${one.name} <span class="muted small">process ${one.pid}</span></li>`)}</ul></section>`}
        <section><h3>Other attempts</h3><p class="small">They stay open.</p></section>`;
}

/** @param {{ rollback: any }} props */
function PlanEffects({ rollback }) {
    const { plan } = rollback;
    const stay = rollback.plans_left ?? [];
    const agents = rollback.agents ?? [];
    const sessions = rollback.sessions ?? [];
    return html`${plan && typeof plan === "object" && html`<section data-effect="plan"><h3>Plan${plan.state ? html`: then ${plan.state}` : ""}</h3><ul class="paths">
            ${plan.steps_taken_back.map((/** @type {string} */ step) => html`<li>${step} <span class="muted small">is no longer done</span></li>`)}
            ${plan.decisions_superseded > 0 && html`<li>${count(plan.decisions_superseded, "decision")} superseded</li>`}</ul></section>`}
        ${stay.length > 0 && html`<section><h3>Plans that stay as they are</h3><ul class="paths">${stay.map((/** @type {string} */ id) => html`<li>${id}</li>`)}</ul></section>`}
        ${sessions.length > 0 && html`<section><h3>Sessions</h3><ul class="paths">${sessions.map((/** @type {any} */ one) => html`<li>${one.session_id}: ${one.from} → ${one.to}</li>`)}</ul></section>`}
        ${agents.length > 0 && html`<section><h3>Agents put back</h3><ul class="paths">${agents.map((/** @type {any} */ one) => html`<li>${typeof one === "string" ? one : one.agent ?? one.name ?? ""}</li>`)}</ul></section>`}`;
}
