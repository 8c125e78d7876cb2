// A text in every version: each content once, the newest first, as it is found.
import { cancelJob, followJob, post } from "../api.js";
import { count, pathKey, pathText, shortLabel, visible, whole } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { asProblem } from "../load.js";
import { amend, link, route } from "../route.js";
import { say } from "../say.js";
import { Command, Failure } from "../states.js";

const shownAtOnce = 200;

/** @param {string} text @param {string} path @param {boolean} ignore */
function useSearch(text, path, ignore) {
    const [state, setState] = useState(/** @type {{ found: any[], job: any, problem: any }} */ ({ found: [], job: null, problem: null }));
    const id = useRef("");
    useEffect(() => {
        if (!text) return;
        const watch = new AbortController();
        setState({ found: [], job: { state: "running" }, problem: null });
        const run = async () => {
            try {
                const job = await post("/searches", { text, ...(path ? { path } : {}), ...(ignore ? { case: "ignore" } : {}) });
                id.current = job.id;
                const end = await followJob(job.id, {
                    signal: watch.signal,
                    item: (item) => setState((old) => ({ ...old, found: [...old.found, item] })),
                    progress: (progress) => setState((old) => ({ ...old, job: progress })),
                });
                setState((old) => ({ ...old, job: end }));
                say(end.state === "done" ? `Search ended: ${end.items} found` : `Search ${end.state}`);
            } catch (error) {
                if (!watch.signal.aborted) setState((old) => ({ ...old, job: null, problem: asProblem(error) }));
            }
        };
        run();
        return () => {
            watch.abort();
            if (id.current) cancelJob(id.current).catch(() => {});
        };
    }, [text, path, ignore]);
    return { ...state, stop: () => cancelJob(id.current).catch(() => {}) };
}

export function Search() {
    const { q = "", path = "", case: rule = "" } = route.value.query;
    const { found, job, problem, stop } = useSearch(q, path, rule === "ignore");
    const [most, setMost] = useState(shownAtOnce);
    const running = job?.state === "running";
    const complete = job?.state === "done" && job.result.complete;
    const unreadable = job?.result?.unreadable ?? 0;
    return html`<main class="screen"><div class="inner">
        <header class="head"><div class="stack tight"><h1>${q ? html`“${q}” in every version` : "Search in every version"}</h1>
            <p class="muted" role="status">${!q ? "Type a text above, or a path to see its versions." : running ? html`<span class="spin"></span>${job.activity ?? "Searching"}${job.total ? ` ${job.done.toLocaleString("en")} of ${job.total.toLocaleString("en")}` : ""}` : `${found.length.toLocaleString("en")} found${job && !complete && job.state === "done" && unreadable === 0 ? ", and more" : job?.state === "cancelled" ? " before it was stopped" : ""}; each content once, in the newest checkpoint that holds it`}</p></div>
            ${running && html`<button onClick=${stop}>Stop</button>`}</header>
        <${Form} q=${q} path=${path} rule=${rule} />
        ${q && html`<p class="small"><a data-versions href=${link(["file"], { path: q })}>Versions of the path <span class="mono">${q}</span></a></p>`}
        ${problem && html`<${Failure} problem=${problem} />`}${job?.state === "failed" && html`<${Failure} problem=${{ body: job.problem }} />`}
        ${unreadable > 0 && html`<p class="remove" role="alert" data-unreadable>${count(unreadable, "damaged object")} could not be searched. To find them: <${Command} text="safepoint verify" /></p>`}
        ${complete && q && found.length === 0 && html`<p class="muted nothing">Nothing found in any checkpoint.</p>`}
        <ol class="founds">${found.slice(0, most).map((one) => html`<li key=${`${one.hash}${pathKey(one.path)}`} class="found-row">
            <div class="row"><a class="mono cut" href=${link(["checkpoint", one.checkpoint], { tab: "all", path: pathKey(one.path), line: String(one.line) })}>${pathText(one.path)}:${one.line}</a>
                <span class="small muted">${one.label ? shortLabel(one.label) : one.checkpoint.slice(0, 9)}, ${whole(one.created_at)}${one.matches > 1 ? `, ${one.matches} lines` : ""}</span></div>
            <pre class="cut"><${Marked} text=${one.text} part=${q} ignore=${rule === "ignore"} /></pre></li>`)}</ol>
        ${found.length > most && html`<button onClick=${() => setMost(most + shownAtOnce)}>${found.length - most} more</button>`}
    </div></main>`;
}

/** @param {{ q: string, path: string, rule: string }} props */
function Form({ q, path, rule }) {
    const text = useRef(/** @type {any} */ (null));
    const below = useRef(/** @type {any} */ (null));
    return html`<form class="row searchform" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); amend({ q: text.current.value, path: below.current.value }); }}>
        <input type="search" ref=${text} key=${`t${q}`} defaultValue=${q} aria-label="Text" placeholder="Text" /><input type="text" ref=${below} key=${`p${path}`} defaultValue=${path} aria-label="Only below this path" placeholder="Only below this path" />
        <label class="check"><input type="checkbox" checked=${rule === "ignore"} onChange=${(/** @type {any} */ changed) => amend({ case: changed.currentTarget.checked ? "ignore" : undefined })} /> Ignore case</label><button>Search</button></form>`;
}

/** The line with what was searched set off. @param {{ text: string, part: string, ignore: boolean }} props */
function Marked({ text, part, ignore }) {
    text = visible(text);
    const at = ignore ? text.toLowerCase().indexOf(part.toLowerCase()) : text.indexOf(part);
    if (at < 0) return text;
    return html`${text.slice(0, at)}<mark>${text.slice(at, at + part.length)}</mark>${text.slice(at + part.length)}`;
}
