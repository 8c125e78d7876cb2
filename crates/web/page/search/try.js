// The test command in a copy of one checkpoint, before a rollback to it.
import { cancelJob, followJob, post } from "../api.js";
import { home } from "../home.js";
import { html, useSignal } from "../html.js";
import { asProblem } from "../load.js";
import { mark } from "./marks.js";

/** @param {{ checkpoint: string }} props */
export function TryTests({ checkpoint }) {
    const state = useSignal(/** @type {{ words: string, tone: string, running: boolean }} */ ({ words: "", tone: "", running: false }));
    const start = async () => {
        state.value = { words: `Running ${home.value.test_command} in a copy`, tone: "", running: true };
        try {
            const job = await post("/find-good", { from: checkpoint, search: "stepwise" });
            const end = await followJob(job.id, {
                item: (tried) => {
                    if (tried.checkpoint !== checkpoint) return;
                    mark(tried);
                    state.value = { words: tried.passed ? "The tests pass in a copy" : `The tests fail in a copy${tried.failure ? `: ${tried.failure}` : ""}`, tone: tried.passed ? "good" : "remove", running: false };
                    // A search goes on to older states; only this one was asked about.
                    cancelJob(job.id).catch(() => {});
                },
            });
            if (state.value.running) state.value = { words: end.problem?.detail ?? "The tests were not run", tone: "remove", running: false };
        } catch (error) {
            state.value = { words: asProblem(error).message, tone: "remove", running: false };
        }
    };
    return html`<div class="row"><button onClick=${start} disabled=${state.value.running}>Try the tests in a copy</button>
        <span class=${`small ${state.value.tone} ${state.value.running ? "spin" : ""}`} role="status">${state.value.words}</span></div>`;
}
