// A file as it is in a checkpoint.
import { ask, pathQuery } from "../api.js";
import { pathKey, pathText, size } from "../format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { Loaded, useLoad } from "../load.js";
import { link } from "../route.js";
import { Code } from "../diff/segments.js";
import { stoppedWords } from "../diff/stopped.js";
import { Pictures } from "../diff/image.js";

/** Lines in the document at once: so many can be found by the browser, and are drawn at once. */
const linesAsked = 3000;

/** @param {{ checkpoint: string, path: any, line?: number }} props */
export function Content({ checkpoint, path, line = 0 }) {
    const first = Math.floor(Math.max(0, line - 1) / linesAsked) * linesAsked;
    const [at, setAt] = useState(first);
    const box = useRef(/** @type {any} */ (null));
    const identity = JSON.stringify([checkpoint, path]);
    useEffect(() => setAt(first), [identity, line]);
    const load = useLoad(() => ask("/file", { query: { checkpoint, path: pathQuery(path), line: at || undefined, limit: linesAsked } }), [identity, at]);
    useLayoutEffect(() => {
        box.current?.querySelector("tr.found")?.scrollIntoView({ block: "center" });
    }, [load.value, line]);
    return html`<section class="filediff" ref=${box} aria-label=${pathText(path)}>
        <header class="row spread"><div class="row"><h2 class="mono name">${pathText(path)}</h2>
            ${load.value && html`<span class="small muted">${size(load.value.entry.size ?? 0)}${load.value.entry.mode ? `, mode ${load.value.entry.mode}` : ""}</span>`}
            <a class="small" href=${link(["file"], { path: pathKey(path) })}>Versions</a></div></header>
        <${Loaded} load=${load}>${(/** @type {any} */ file) => html`
            ${file.stopped && html`<p class="hint small">${stoppedWords(file.stopped, file.kind)}</p>`}
            ${file.kind === "text" ? html`<div class="lines" tabindex="0" role="region" aria-label=${`Text of ${pathText(path)}`}><table class="difference inline plain"><caption class="unseen">${pathText(path)}</caption><colgroup><col class="no" /><col /></colgroup><tbody>
                    ${file.lines.map((/** @type {any} */ one, /** @type {number} */ index) => html`<tr key=${index} class=${at + index + 1 === line ? "found" : ""}><td class="no">${at + index + 1}</td><td class="text"><${Code} text=${one.text} spans=${one.spans} /></td></tr>`)}
                </tbody></table></div>`
                : file.kind === "image" ? html`<${Pictures} old=${{ checkpoint: null, path, side: null }} now=${{ checkpoint, path, side: { size: file.entry.size } }} />`
                : file.kind === "link" ? html`<p class="hint">Link to <span class="mono">${pathText(file.entry.target ?? "")}</span></p>`
                : html`<p class="hint muted">A binary file of ${size(file.entry.size ?? 0)}, <span class="mono">${file.entry.hash?.slice(0, 16)}</span></p>`}
            ${(file.next !== null || at > 0) && html`<div class="row pager"><button disabled=${at === 0} onClick=${() => setAt(Math.max(0, at - linesAsked))}>Lines before</button>
                <button disabled=${file.next === null} onClick=${() => setAt(file.next)}>More lines</button>
                <span class="muted small">${(at + 1).toLocaleString("en")} to ${(at + (file.lines?.length ?? 0)).toLocaleString("en")} of ${(file.total_lines ?? 0).toLocaleString("en")} lines</span></div>`}
        `}<//>
    </section>`;
}
