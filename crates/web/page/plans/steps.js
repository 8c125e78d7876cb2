// The steps of a plan as a tree, each with its state in a sign and in words.
import { count, span } from "../format.js";
import { html } from "../html.js";

/** @type {Record<string, [string, string]>} */
const signs = { done: ["✓", "good"], failed: ["✗", "remove"], interrupted: ["!", "remove"], running: ["▶", "running"], pending: ["○", "muted"] };

/** @param {any[]} steps @returns {any[]} */
export function flat(steps) {
    return steps.flatMap((step) => [step, ...flat(step.steps ?? [])]);
}

/** @param {any[]} steps */
const leaves = (steps) => flat(steps).filter((step) => !step.steps?.length);

/** @param {any[]} steps */
export function done(steps) {
    const all = leaves(steps);
    return { all: all.length, done: all.filter((step) => step.state === "done").length };
}

/** The step to look at first: the one that runs, else the one that failed, else the newest. @param {any[]} steps */
export function firstOpen(steps) {
    const all = leaves(steps);
    const running = all.find((step) => step.state === "running");
    const broken = all.find((step) => step.state === "failed" || step.state === "interrupted");
    return (running ?? broken ?? all.filter((step) => step.started_at).pop() ?? all[0])?.path ?? "";
}

/** @param {{ steps: any[], chosen: string, choose: (path: string) => void, level?: number }} props */
export function StepTree({ steps, chosen, choose, level = 1 }) {
    return html`<ul class="steps">${steps.map((step) => {
        const [sign, tone] = signs[step.state] ?? ["?", "muted"];
        return html`<li key=${step.path}>
            <button class=${`plain step ${chosen === step.path ? "chosen" : ""}`} aria-current=${chosen === step.path ? "true" : undefined} style=${{ paddingLeft: `${8 + (level - 1) * 18}px` }} onClick=${() => choose(step.path)}>
                <span class=${`step-sign ${tone}`} aria-hidden="true">${sign}</span><span class="cut">${step.title ?? step.id}</span><span class="unseen">${step.state}</span>
                <span class="small muted nowrap">${step.skipped ? "left out" : facts(step)}</span></button>
            ${step.undo && html`<p class="small muted step-undo" style=${{ paddingLeft: `${30 + (level - 1) * 18}px` }}>undo: <code>${step.undo}</code></p>`}
            ${step.error && html`<p class="small remove step-undo" style=${{ paddingLeft: `${30 + (level - 1) * 18}px` }}>${step.error}</p>`}
            ${step.steps?.length > 0 && html`<${StepTree} steps=${step.steps} chosen=${chosen} choose=${choose} level=${level + 1} />`}
        </li>`;
    })}</ul>`;
}

/** @param {any} step */
function facts(step) {
    const tries = step.retries && step.attempts > 0 ? `attempt ${step.attempts} of ${Math.max(step.attempts, step.retries + 1)}, ` : step.attempts > 1 ? `${count(step.attempts, "attempt")}, ` : "";
    if (step.started_at && step.finished_at) return `${tries}${span((Date.parse(step.finished_at) - Date.parse(step.started_at)) / 1000)}`;
    return step.state === "pending" ? "waits" : `${tries}${step.state}`;
}
