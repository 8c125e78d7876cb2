// States that a screen shows in place of its content, and the notices above all screens.
import { post } from "./api.js";
import { visible } from "./format.js";
import { html, useState } from "./html.js";
import { home, link, recovered } from "./home.js";
import { say } from "./say.js";

/** A command to copy. @param {{ text: string }} props */
export function Command({ text }) {
    const [copied, setCopied] = useState(false);
    const copy = async () => {
        await navigator.clipboard.writeText(text);
        setCopied(true);
        say("Copied");
    };
    return html`<span class="command"><code tabindex="0">${text}</code>
        <button class="plain small" onClick=${copy} aria-label=${`Copy: ${text}`}>${copied ? "Copied" : "Copy"}</button></span>`;
}

/** @param {{ problem: import("./api.js").Problem, again?: () => void }} props */
export function Failure({ problem, again }) {
    const { detail, causes, hints, code, kind } = problem.body;
    const title = titles[kind] ?? "Failed";
    return html`<section class="failure" role="alert" data-code=${code}>
        <h2>${title}</h2>
        <p><${Words} text=${sentence(detail)} /></p>
        ${causes.length > 0 && html`<ul class="small muted">${causes.map((cause) => html`<li><${Words} text=${sentence(cause)} /></li>`)}</ul>`}
        ${kind === "damaged" && html`<p>What can be read is shown as usual. A check names every checkpoint that is damaged, and which are whole:</p><${Command} text="safepoint verify" />`}
        ${hints.filter((hint) => !hint.startsWith("docs/")).map((hint) => html`<${Hint} text=${hint} />`)}
        <p class="small muted">${code}</p>
        ${again && html`<div><button onClick=${again}>Try again</button></div>`}
    </section>`;
}

/** @type {Record<string, string>} */
const titles = { busy: "Busy", damaged: "Damaged", not_found: "Not found", conflict: "Not possible now", usage: "Not possible", denied: "Not allowed" };

/** Text of a message as a sentence: the words of the program begin small. @param {string} text */
export function sentence(text) {
    const shown = visible(text);
    // A path or a command at the beginning keeps its letters.
    return /^[a-z]+ /.test(shown) ? shown[0]?.toUpperCase() + shown.slice(1) : shown;
}

/** Words with code between backticks. @param {{ text: string }} props */
export function Words({ text }) {
    return html`${text.split("`").map((piece, index) => (index % 2 ? html`<code>${piece}</code>` : piece))}`;
}

/** A hint; one that is a command can be copied. @param {{ text: string }} props */
function Hint({ text }) {
    const command = /(?:^|: )((?:safepoint|SAFEPOINT_\w+=\S+ safepoint) .+)$/.exec(text);
    if (!command?.[1]) return html`<p class="small"><${Words} text=${text} /></p>`;
    return html`<div class="row">${command.index > 0 && html`<span class="small">${text.slice(0, command.index)}:</span>`}<${Command} text=${command[1]} /></div>`;
}

/** Takes the first checkpoint, which also registers the folder. @param {{ taken: () => void }} props */
export function NoCheckpoint({ taken }) {
    const [problem, setProblem] = useState(/** @type {any} */ (null));
    const [busy, setBusy] = useState(false);
    const take = () => {
        setBusy(true);
        post("/checkpoints", {}).then(taken, (error) => { setProblem(error); setBusy(false); });
    };
    return html`<div class="empty">
        <h1>No checkpoint yet</h1>
        <p>The first checkpoint holds the whole folder. Take it here, or in a terminal in the folder:</p>
        <${Command} text=${'safepoint create -m "before the agent"'} />
        <p>To get one for each turn of an agent automatically:</p>
        <${Command} text="safepoint install" />
        ${problem?.body && html`<${Failure} problem=${problem} />`}
        <button class="main" disabled=${busy} onClick=${take}>${busy ? "Taking…" : "Take the first checkpoint"}</button>
    </div>`;
}

export function Locked() {
    return html`<main class="empty">
        <h1>This page has no key</h1>
        <p>The address works once, and for one minute. Start the page again in a terminal, and open the address that it prints:</p>
        <${Command} text="safepoint ui" />
    </main>`;
}

/** Problems of the workspace or the server, above all screens. */
export function Notices() {
    const state = home.value;
    return html`<section aria-label="Notices">
        ${link.value === "gone" && html`<div class="notice bad" role="alert" data-notice="gone">
            <span class="strong">The server does not answer.</span><span>What you see may be old. Connecting again…</span><${Command} text="safepoint ui" /></div>`}
        ${state?.missing && html`<div class="notice bad" data-notice="missing"><span class="strong">The folder is gone.</span>
            <span class="mono">${String(state.workspace.root)}</span><span>Its checkpoints are whole. To build the last state elsewhere:</span>${state.workspace.head && html`<${Command} text=${`safepoint rollback ${state.workspace.head} --to ${state.workspace.root}.restored`} />`}</div>`}
        ${state?.read_only && html`<div class="notice info" data-notice="read-only"><span class="strong">Read-only.</span>
            <span>Nothing can be changed here, and the current state is not shown.</span></div>`}
        ${recovered.value && html`<div class="notice" data-notice="recovered"><span>${recovered.value}</span>
            <button class="plain" onClick=${() => { recovered.value = ""; }}>Close</button></div>`}
    </section>`;
}
