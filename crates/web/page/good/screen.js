// The newest state that the tests pass, tried in a copy beside the workspace.
import { cancelJob, followJob, post } from "../api.js";
import { home } from "../home.js";
import { html, signal, useRef } from "../html.js";
import { asProblem } from "../load.js";
import { go, link } from "../route.js";
import { Failure } from "../states.js";
import { mark } from "../search/marks.js";
import { nameOf } from "../timeline/names.js";

/** The search outlives the screen. */
const state = signal(/** @type {{ tried: any[], job: any, problem: any, search: string, command: string }} */ ({ tried: [], job: null, problem: null, search: "bisect", command: "" }));

/** @param {string} search @param {string} command where it is not the configured one */
async function run(search, command) {
    state.value = { tried: [], job: { state: "running" }, problem: null, search, command };
    try {
        const job = await post("/find-good", { search, ...(command ? { command } : {}) });
        state.value = { ...state.value, job };
        const end = await followJob(job.id, {
            item: (tried) => { mark(tried); state.value = { ...state.value, tried: [...state.value.tried, tried] }; },
            progress: (progress) => { state.value = { ...state.value, job: progress }; },
        });
        state.value = { ...state.value, job: end };
    } catch (error) {
        state.value = { ...state.value, job: null, problem: asProblem(error) };
    }
}

export function Good() {
    const { tried, job, problem, search } = state.value;
    const typed = useRef(/** @type {any} */ (null));
    const running = job?.state === "running";
    const found = job?.state === "done" ? job.result?.checkpoint : null;
    const { test_command: command, allow_commands: free, read_only: locked } = home.value;
    const possible = !locked && (command || free);
    const begin = (/** @type {string} */ by) => { const own = typed.current?.value.trim() ?? ""; if (own || command) run(by, own); else typed.current?.focus(); };
    return html`<main class="screen"><div class="inner">
        <header class="head"><div class="stack tight"><h1>Find the newest good state</h1>
            <p class="muted">Runs ${command ? html`<code>${command}</code>` : "the test command"} on checkpoints in a copy beside the workspace, which stays as it is.</p></div>
            <div class="row">${running ? html`<button onClick=${() => cancelJob(job.id).catch(() => {})}>Stop</button>`
                : html`<button class="main" disabled=${!possible} onClick=${() => begin("bisect")}>By halves</button><button disabled=${!possible} onClick=${() => begin("stepwise")}>One after the other</button>`}</div></header>
        ${free && !locked && html`<p><label class="row">Command <input type="text" class="mono" ref=${typed} defaultValue=${state.value.command} placeholder=${command ?? "cargo test"} spellcheck=${false} /></label></p>`}
        ${!command && !free && html`<p class="muted">No test command is configured for this workspace: set <code>test</code> under <code>[checks]</code> in config.toml.</p>`}
        <p class="muted small nothing">By halves is quick, and assumes that all states older than one that passes pass, too.</p>
        ${problem && html`<${Failure} problem=${problem} />`}${job?.problem && html`<${Failure} problem=${{ body: job.problem }} />`}
        ${running && html`<p class="muted spin" role="status">${job.activity ?? "Running the tests"}</p>`}
        ${found && html`<section class="card"><h2><span class="good">✓ </span>${search === "bisect" ? "Newest state that passes, if all older ones pass" : "Newest state that passes"}</h2><div class="in row"><a href=${link(["checkpoint", found])}>${nameOf(found)}</a><button class="main" onClick=${() => go(["rollback", found])}>Roll back…</button></div></section>`}
        ${job?.state === "done" && !found && html`<${NotFound} result=${job.result} tried=${tried} bisects=${search === "bisect"} again=${() => run("stepwise", state.value.command)} />`}
        ${job?.state === "cancelled" && html`<p class="muted">Stopped. Not all states were tried.</p>`}
        <ol class="tries">${tried.map((one, index) => html`<li key=${index} class="row"><span class=${`chip ${one.skipped ? "" : one.passed ? "good" : "bad"}`}>${one.skipped ? "skipped" : one.passed ? "✓ passes" : "✗ fails"}</span>
            ${one.checkpoint ? html`<a href=${link(["checkpoint", one.checkpoint])}>${nameOf(one.checkpoint)}</a>` : "the current state"}<span class="muted small cut">${one.failure ?? ""}</span></li>`)}</ol>
    </div></main>`;
}

/** What an end without a checkpoint means. @param {{ result: any, tried: any[], bisects: boolean, again: () => void }} props */
function NotFound({ result, tried, bisects, again }) {
    if (result?.current?.passed) return html`<p data-outcome>The current state passes.</p>`;
    const those = tried.filter((one) => one.checkpoint);
    if (!bisects) return html`<p data-outcome>${those.some((one) => one.skipped) ? "None of the checkpoints that could be tried passes." : those.length === 0 ? "There is no checkpoint to try." : "No checkpoint passes."}</p>`;
    // A search by halves ends when the oldest fails: newer ones were not tried.
    return html`<div class="row" data-outcome><p>The oldest checkpoint fails, so halves find nothing. Newer ones were not tried and may pass.</p><button onClick=${again}>Try one after the other</button></div>`;
}
