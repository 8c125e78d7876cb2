// Plans: the list, and one plan as it runs.
import { ask, cancelJob } from "../api.js";
import { ago, count, whole } from "../format.js";
import { event, home, now } from "../home.js";
import { html, useEffect, useState } from "../html.js";
import { Loaded, useLoad } from "../load.js";
import { go, link, route } from "../route.js";
import { Command } from "../states.js";
import { titleOf } from "../timeline/words.js";
import { Correct } from "./correct.js";
import { Output } from "./output.js";
import { Resume } from "./resume.js";
import { runs } from "./runs.js";
import { done, firstOpen, StepTree } from "./steps.js";

/** @type {Record<string, string>} */
export const tones = { done: "good", applied: "good", failed: "bad", interrupted: "bad", running: "mark", paused: "warn" };

/** The number of the last event about plans. */
function planEvent() {
    return event.value && /^(plan|step|run|rollback|decision)/.test(event.value.kind) ? event.value.seq : 0;
}

export function Plans() {
    const load = useLoad(() => ask("/plans"), [planEvent()]);
    return html`<main class="screen"><div class="inner"><header class="head"><h1>Plans</h1></header>
        <${Loaded} load=${load}>${(/** @type {any} */ { plans }) => (plans.length === 0
            ? html`<div class="empty"><h2>No plan yet</h2><p>A plan is a list of steps that Safepoint runs with a checkpoint at each milestone:</p><${Command} text="safepoint plan new plan.toml" /></div>`
            : html`<div class="scroll" tabindex="0" role="region" aria-label="Plans"><table class="list"><caption class="unseen">Plans, the newest first</caption><thead><tr><th>Plan</th><th>Title</th><th>State</th><th>Changed</th></tr></thead><tbody>
                ${plans.map((/** @type {any} */ plan) => html`<tr key=${plan.id}><td><a class="mono" href=${link(["plan", plan.id])}>${plan.id}</a></td><td>${plan.title}</td><td><span class=${`chip ${tones[plan.state] ?? ""}`}>${plan.state}</span></td><td class="muted nowrap">${ago(plan.updated_at, now.value)}</td></tr>`)}
            </tbody></table></div>`)}<//></div></main>`;
}

export function Plan() {
    const id = route.value.names[0] ?? "";
    const load = useLoad(() => ask(`/plans/${encodeURIComponent(id)}`), [id, planEvent()]);
    const running = load.value && (load.value.running || load.value.plan.state === "running");
    useEffect(() => {
        // A runner that is killed writes no event.
        if (!running) return;
        const timer = setInterval(load.again, 2000);
        return () => clearInterval(timer);
    }, [id, running]);
    return html`<main class="screen fill"><${Loaded} load=${load}>${(/** @type {any} */ detail) => html`<${Detail} key=${id} detail=${detail} again=${load.again} />`}<//></main>`;
}

/** @param {{ detail: any, again: () => void }} props */
function Detail({ detail, again }) {
    const { running, clean, checkpoints, log } = detail;
    // Of a runner that died, the last word is "running".
    const stalled = detail.plan.state === "running" && !running;
    const plan = stalled ? { ...detail.plan, state: "interrupted", steps: interrupted(detail.plan.steps) } : detail.plan;
    const open = firstOpen(plan.steps);
    const [chosen, setChosen] = useState("");
    const [dialog, setDialog] = useState("");
    const step = chosen || open;
    const progress = done(plan.steps);
    const locked = home.value.read_only;
    const job = runs.value.get(plan.id);
    return html`<header class="head"><div class="stack tight"><h1 class="row">${plan.title || plan.id} <span class=${`chip ${tones[plan.state] ?? ""}`}>${plan.state}</span>${running && html`<span class="chip mark">live</span>`}</h1>
            <div class="facts small"><span class="mono">${plan.id}</span><span>${progress.done} of ${count(progress.all, "step")}</span><span>changed ${ago(plan.updated_at, now.value)}</span>${clean && html`<a href=${link(["checkpoint", clean])}>last clean checkpoint</a>`}</div></div>
        ${!locked && html`<div class="row">${job && html`<button onClick=${() => cancelJob(job).catch(() => {})}>Stop</button>`}<button onClick=${() => setDialog("correct")} disabled=${running}>Correct…</button>
            <button onClick=${() => go(["planback", plan.id])} disabled=${running || !clean}>Roll back…</button>
            <button class="main" onClick=${() => setDialog("resume")} disabled=${running || ["done", "applied", "cancelled"].includes(plan.state)}>Resume…</button></div>`}</header>
        <div class="tabbed plan-body"><section class="plan-steps" aria-label="Steps"><${StepTree} steps=${plan.steps} chosen=${step} choose=${setChosen} /></section>
            <section class="plan-side"><${Output} plan=${plan.id} step=${step} steps=${plan.steps} version=${plan.version} running=${running} />
                <${Decisions} decisions=${plan.decisions} log=${log} /><${Checkpoints} rows=${checkpoints} plan=${plan.id} /><${Log} log=${log} /></section></div>
        ${dialog === "correct" && html`<${Correct} plan=${plan} clean=${clean} checkpoints=${checkpoints} close=${() => { setDialog(""); again(); }} />`}
        ${dialog === "resume" && html`<${Resume} plan=${plan} close=${() => { setDialog(""); again(); }} />`}`;
}

/** @param {any[]} steps @returns {any[]} */
function interrupted(steps) {
    return steps.map((step) => ({ ...step, steps: interrupted(step.steps ?? []), state: step.state === "running" ? "interrupted" : step.state }));
}

/** @param {{ decisions: any[], log: any[] }} props */
function Decisions({ decisions, log }) {
    const superseded = log.filter((one) => one.kind === "superseded").reverse();
    if (decisions.length + superseded.length === 0) return null;
    return html`<section><h2 class="small-head">Decisions</h2><ul class="decisions">${decisions.map((one) => html`<li key=${one.id}><p>${one.question} <span class="strong">${one.choice}</span>${one.alternatives.length > 0 && html` <span class="muted">(not ${one.alternatives.join(", ")})</span>`}</p>${one.rationale && html`<p class="muted small">${one.rationale}</p>`}</li>`)}</ul>
        ${superseded.map((one) => html`<details key=${one.at}><summary class="muted small">Superseded by the rollback of ${whole(one.at)}: ${count(one.payload.decisions.length, "decision")}</summary>
            <ul class="decisions muted">${one.payload.decisions.map((/** @type {any} */ old) => html`<li><p>${old.question} ${old.choice}</p></li>`)}</ul></details>`)}</section>`;
}

/** @param {{ rows: any[], plan: string }} props */
function Checkpoints({ rows, plan }) {
    if (rows.length === 0) return null;
    return html`<section><h2 class="small-head">Checkpoints</h2><ul class="lines-list">${rows.map((row) => html`<li class="row" key=${row.checkpoint.id}><a class="cut" href=${link(["checkpoint", row.checkpoint.id])}>${titleOf(row)}</a><span class="muted small">${whole(row.checkpoint.created_at)}</span>
        ${!home.value.read_only && html`<button class="plain" aria-label=${`Roll the plan back to ${titleOf(row)}`} onClick=${() => go(["planback", plan, row.checkpoint.id])}>↶</button>`}</li>`)}</ul></section>`;
}

/** @param {{ log: any[] }} props */
function Log({ log }) {
    if (log.length === 0) return null;
    return html`<details><summary class="small-head">Log, ${count(log.length, "entry", "entries")}</summary><ol class="lines-list small">${log.slice(-200).reverse().map((one) => html`<li class="row"><span class="muted mono">${whole(one.at)}</span><span>${one.kind}</span><span class="mono cut">${one.subject}</span></li>`)}</ol></details>`;
}
