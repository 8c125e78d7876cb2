// Correcting a plan: back to a clean checkpoint with guidance, by way of a preview; or in place.
import { post } from "../api.js";
import { refresh } from "../home.js";
import { html, useState } from "../html.js";
import { asProblem } from "../load.js";
import { go } from "../route.js";
import { Failure } from "../states.js";
import { titleOf } from "../timeline/words.js";
import { toast } from "../toast.js";
import { Dialog } from "./dialog.js";
import { flat } from "./steps.js";

/** @param {{ plan: any, clean: string | null, checkpoints: any[], close: () => void }} props */
export function Correct({ plan, clean, checkpoints, close }) {
    const [mode, setMode] = useState(clean ? "revert" : "in_place");
    const [guidance, setGuidance] = useState("");
    const [to, setTo] = useState(clean ?? "");
    const [problem, setProblem] = useState(/** @type {any} */ (null));
    const [busy, setBusy] = useState(false);
    const broken = flat(plan.steps).find((step) => !step.steps?.length && (step.state === "failed" || step.state === "interrupted"));
    const run = async (/** @type {Event} */ event) => {
        event.preventDefault();
        if (mode === "revert") {
            close();
            go(["correct", plan.id, to], guidance ? { guidance } : {});
            return;
        }
        setBusy(true);
        try {
            await post(`/plans/${encodeURIComponent(plan.id)}/correct`, { mode, ...(guidance ? { guidance } : {}) });
            toast("The failed step waits for another attempt: resume the plan");
            await refresh();
            close();
        } catch (error) {
            setProblem(asProblem(error));
        }
        setBusy(false);
    };
    return html`<${Dialog} title=${`Correct ${plan.id}`} close=${close}><form onSubmit=${run}>
        <label class="check"><input type="radio" name="mode" checked=${mode === "revert"} disabled=${!clean} onChange=${() => setMode("revert")} /> Roll files and plan back, then go on</label>
        ${mode === "revert" && html`<label class="stack tight">To <select value=${to} onChange=${(/** @type {any} */ event) => setTo(event.currentTarget.value)}>${checkpoints.map((row) => html`<option value=${row.checkpoint.id}>${titleOf(row)}${row.checkpoint.id === clean ? " (last clean)" : ""}</option>`)}</select></label>`}
        <label class="check"><input type="radio" name="mode" checked=${mode === "in_place"} disabled=${!broken} onChange=${() => setMode("in_place")} /> Keep the files, and try the failed step again</label>
        ${mode === "in_place" && broken && html`<p class="muted small">No file changes now. The next <i>Resume</i> runs <span class="mono">${broken.path}</span>${broken.run && html`: <code>${broken.run}</code>`}</p>`}
        <label class="stack tight">Guidance <textarea rows="3" value=${guidance} onInput=${(/** @type {any} */ event) => setGuidance(event.currentTarget.value)}></textarea></label>
        ${problem && html`<${Failure} problem=${problem} />`}
        <div class="row"><button type="button" autofocus onClick=${close}>Cancel</button><button class="main" disabled=${busy}>${mode === "revert" ? "Preview…" : "Correct"}</button></div>
    </form><//>`;
}
