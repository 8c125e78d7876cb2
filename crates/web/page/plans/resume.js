// Resuming a plan: its commands are shown before they run.
import { count } from "../format.js";
import { html, useState } from "../html.js";
import { asProblem } from "../load.js";
import { Failure } from "../states.js";
import { Dialog } from "./dialog.js";
import { resume } from "./runs.js";
import { flat } from "./steps.js";

/** @param {{ plan: any, close: () => void }} props */
export function Resume({ plan, close }) {
    const all = flat(plan.steps);
    const interrupted = all.some((step) => step.state === "interrupted");
    const next = all.filter((step) => step.run && step.state !== "done" && !step.skipped);
    const [answer, setAnswer] = useState("rerun");
    const [problem, setProblem] = useState(/** @type {any} */ (null));
    const run = async (/** @type {Event} */ event) => {
        event.preventDefault();
        try {
            await resume(plan.id, interrupted ? { interrupted: answer } : {});
            close();
        } catch (error) {
            setProblem(asProblem(error));
        }
    };
    return html`<${Dialog} title=${`Resume ${plan.id}`} close=${close}><form onSubmit=${run}>
        <p>This runs ${count(next.length, "command")} of the plan, the first of them:</p>
        <ol class="paths">${next.slice(0, 5).map((step) => html`<li><code>${step.run}</code> <span class="muted small">${step.path}</span></li>`)}</ol>
        ${interrupted && html`<fieldset class="stack tight"><legend>The interrupted step</legend>
            ${[["rerun", "run it again"], ["done", "count it as done"], ["fail", "count it as failed"]].map(([value, words]) => html`<label class="check"><input type="radio" name="interrupted" checked=${answer === value} onChange=${() => setAnswer(value ?? "rerun")} /> ${words}</label>`)}</fieldset>`}
        ${problem && html`<${Failure} problem=${problem} />`}
        <div class="row"><button type="button" autofocus onClick=${close}>Cancel</button><button class="main">Run</button></div>
    </form><//>`;
}
