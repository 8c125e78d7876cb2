// Versions of a path, the newest first, and the newest state with a line.
import { ask, pathQuery } from "../api.js";
import { Sign } from "../counts.js";
import { count, pathKey, pathOfKey, pathText, shortLabel, size, whole } from "../format.js";
import { home } from "../home.js";
import { html, useEffect, useState } from "../html.js";
import { useKeys } from "../keys.js";
import { asProblem } from "../load.js";
import { amend, go, link, route } from "../route.js";
import { Failure } from "../states.js";
import { FileDifference } from "../diff/file.js";
import { Content } from "../checkpoint/content.js";

/** Versions, a page after the other; a page may be empty while more follow. @param {any} path */
function useVersions(path) {
    const [state, setState] = useState(/** @type {{ versions: any[], next: number | null, loading: boolean, unreadable: number, problem: any }} */ ({ versions: [], next: null, loading: true, unreadable: 0, problem: null }));
    /** @param {number | undefined} before @param {any[]} had @param {() => boolean} current */
    const get = async (before, had, current) => {
        setState((old) => ({ versions: had, next: null, loading: true, unreadable: before === undefined ? 0 : old.unreadable, problem: null }));
        try {
            let next = before;
            let versions = had;
            do {
                const answer = await ask("/history", { query: { path: pathQuery(path), before: next } });
                if (!current()) return;
                versions = [...versions, ...answer.versions];
                next = answer.next ?? undefined;
                setState((old) => ({ versions, next: answer.next, loading: true, unreadable: old.unreadable + answer.unreadable, problem: null }));
            } while (next !== undefined && versions.length < had.length + 20);
            setState((old) => ({ ...old, versions, next: next ?? null, loading: false }));
        } catch (error) {
            if (current()) setState((old) => ({ ...old, loading: false, problem: asProblem(error) }));
        }
    };
    useEffect(() => {
        let here = true;
        get(undefined, [], () => here);
        return () => { here = false; };
    }, [JSON.stringify(path)]);
    return { ...state, more: () => get(state.next ?? undefined, state.versions, () => true) };
}

export function FileHistory() {
    const key = route.value.query.path ?? "";
    return html`<main class="screen fill"><${Versions} key=${key} path=${pathOfKey(key)} /></main>`;
}

/** @param {{ path: any }} props */
function Versions({ path }) {
    const { versions, next, loading, unreadable, problem, more } = useVersions(path);
    const chosen = Math.max(0, versions.findIndex((one) => one.checkpoint === route.value.query.at));
    const version = versions[chosen];
    const older = versions[chosen + 1];
    const choose = (/** @type {number} */ index) => {
        const one = versions[index];
        if (one) amend({ at: one.checkpoint });
    };
    useKeys({
        j: () => choose(chosen + 1), k: () => choose(chosen - 1), "[": () => choose(chosen + 1), "]": () => choose(chosen - 1),
        r: () => { if (version && !home.value.read_only) go(["rollback", version.checkpoint], { path: pathKey(path) }); },
    });
    const text = pathText(path);
    const key = pathKey(path);
    return html`
        <header class="head"><div class="stack tight"><h1 class="mono">${text || "the whole folder"}</h1><p class="muted small">${versions.length}${next !== null ? "+" : ""} ${versions.length === 1 ? "version" : "versions"}, the newest first</p></div><${WithLine} path=${path} /></header>
        ${problem && html`<div class="inner"><${Failure} problem=${problem} /></div>`}
        ${unreadable > 0 && html`<p class="hint remove" role="alert" data-unreadable>${count(unreadable, "checkpoint")} cannot be read, because ${unreadable === 1 ? "it is" : "they are"} damaged: versions may be missing here.</p>`}
        ${!loading && versions.length === 0 && !problem && unreadable === 0 && html`<div class="empty"><h2>No version</h2><p>No checkpoint holds <span class="mono">${text}</span>. The path is relative to the folder of the workspace.</p></div>`}
        ${versions.length > 0 && html`<div class="panes tabbed">
            <div class="side"><ul class="versions" role="listbox" aria-label="Versions" onKeyDown=${(/** @type {KeyboardEvent} */ event) => listKeys(event, chosen, choose)}>${versions.map((one, index) => html`
                <li key=${one.checkpoint} role="option" aria-selected=${index === chosen} tabindex=${index === chosen ? 0 : -1} class="version" onClick=${() => choose(index)}>
                    <${Sign} change=${one.change} /><span class="cut">${one.change === "rolled_back" ? "put back by a rollback" : one.label ? shortLabel(one.label) : one.agent ?? one.checkpoint.slice(0, 9)}</span><span class="small muted nowrap">${one.entry?.size != null ? size(one.entry.size) : one.change === "removed" ? "removed" : ""}</span>
                    <span class="small muted second cut">${one.change === "rolled_back" ? "seen " : ""}${whole(one.created_at)} ${one.agent ?? ""}</span></li>`)}</ul>
                ${next !== null && html`<button class="morepaths" disabled=${loading} onClick=${more}>Older versions</button>`}${loading && html`<p class="hint muted spin small">Reading</p>`}</div>
            <div class="pane">${version && html`<div class="row acts-bar">
                    ${!home.value.read_only && html`<button class="main" data-restore onClick=${() => go(["rollback", version.checkpoint], { path: key })}>${version.change === "removed" ? "Remove it again…" : "Put back this version…"}</button>`}
                    <a class="button" href=${link(["checkpoint", version.checkpoint], { path: key })}>Open the state</a>
                    <a class="button" href=${link(["compare", version.checkpoint, "present"], { path: key })}>Compare with now</a></div>
                ${version.entry?.type === "directory" ? html`<p class="hint muted">A folder: <a href=${older ? link(["compare", older.checkpoint, version.checkpoint]) : link(["checkpoint", version.checkpoint])}>see what changed in it</a>.</p>`
                    : older ? html`<${FileDifference} from=${older.checkpoint} to=${version.checkpoint} path=${path} versions=${false} ids=${{ from: older.checkpoint, to: version.checkpoint }} />`
                    : version.entry && html`<${Content} checkpoint=${version.checkpoint} path=${path} />`}`}</div>
        </div>`}`;
}

/** @param {KeyboardEvent} event @param {number} chosen @param {(index: number) => void} choose */
function listKeys(event, chosen, choose) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(chosen + step);
    requestAnimationFrame(() => /** @type {HTMLElement | null} */ (document.querySelector(".versions [aria-selected=true]"))?.focus());
}

/** @param {{ path: any }} props */
function WithLine({ path }) {
    const [text, setText] = useState("");
    const [found, setFound] = useState(/** @type {any} */ (undefined));
    const look = async (/** @type {Event} */ event) => {
        event.preventDefault();
        if (!text) return;
        try {
            const answer = await ask("/line", { query: { path: pathQuery(path), text } });
            setFound(answer.found);
        } catch (error) {
            setFound({ problem: asProblem(error).message });
        }
    };
    return html`<form class="row" onSubmit=${look}><input type="search" aria-label="Newest state with this line" placeholder="Newest state with this line" value=${text} onInput=${(/** @type {any} */ event) => setText(event.currentTarget.value)} />
        <button disabled=${!text}>Find</button>
        <span class="small" role="status" data-line>${found === null ? "In no version" : found?.problem ?? (found && html`<a href=${link(["checkpoint", found.checkpoint], { tab: "all", path: pathKey(found.path), line: String(found.line) })}>${found.label ?? whole(found.created_at)}, line ${found.line}</a>`)}</span></form>`;
}
