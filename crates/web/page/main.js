// The page: enters by the key, then shows the screen of the address.
import { gone } from "./api.js";
import { Attempt, Attempts } from "./attempts/screen.js";
import { Compare } from "./compare/screen.js";
import { Checkpoint } from "./checkpoint/screen.js";
import { narrow } from "./diff/file.js";
import { Disk } from "./disk/screen.js";
import { enter } from "./door.js";
import { FileHistory } from "./file/screen.js";
import { Good } from "./good/screen.js";
import { home, link as connection, listen, refresh } from "./home.js";
import { html, render, signal, useEffect, useRef } from "./html.js";
import { helpOpen, KeyHelp, useKeys } from "./keys.js";
import { asProblem } from "./load.js";
import { Plan, Plans } from "./plans/screen.js";
import { Rollback } from "./rollback/screen.js";
import { go, route } from "./route.js";
import { LiveRegion } from "./say.js";
import { Search } from "./search/screen.js";
import { Sessions } from "./sessions/screen.js";
import { Failure, Locked, NoCheckpoint, Notices } from "./states.js";
import { Timeline } from "./timeline/screen.js";
import { Toasts } from "./toast.js";

/** @type {Record<string, [any, string]>} */
const screens = {
    timeline: [Timeline, "Timeline"], checkpoint: [Checkpoint, "Checkpoint"], compare: [Compare, "Compare"], file: [FileHistory, "Versions"],
    search: [Search, "Search"], good: [Good, "Find good"], rollback: [Rollback, "Preview"], undo: [Rollback, "Preview"], redo: [Rollback, "Preview"],
    turn: [Rollback, "Preview"], planback: [Rollback, "Preview"], correct: [Rollback, "Preview"], keep: [Rollback, "Preview"], attempts: [Attempts, "Attempts"], attempt: [Attempt, "Attempt"], plans: [Plans, "Plans"], plan: [Plan, "Plan"], sessions: [Sessions, "Sessions"], disk: [Disk, "Disk"],
};
const tabs = [["timeline", "Timeline"], ["plans", "Plans"], ["sessions", "Sessions"], ["attempts", "Attempts"], ["disk", "Disk"]];

/** The state of the start: no key yet, refused, or in. */
const start = signal(/** @type {{ state: "entering" | "locked" | "in" | "empty" | "failed", problem?: any }} */ ({ state: "entering" }));

function Bar() {
    const seek = useRef(/** @type {any} */ (null));
    useKeys({ "/": () => seek.current.focus(), "?": () => { helpOpen.value = true; } });
    const at = route.value.screen;
    const tab = at === "plan" || at === "planback" || at === "correct" ? "plans" : at === "attempt" || at === "keep" ? "attempts" : at;
    // Few projects have attempts at a time.
    const shown = tabs.filter(([name]) => name !== "attempts" || home.value.attempts > 0 || tab === "attempts");
    const state = connection.value;
    return html`<header class="bar">
        <a class="name" href="#/timeline" title=${String(home.value.workspace.root)}><img src="./icon.svg" alt="" width="20" height="20" />${home.value.workspace.name}</a>
        <nav aria-label="Screens">${shown.map(([name, words]) => html`<a href=${`#/${name}`} aria-current=${tab === name ? "page" : undefined}>${words}</a>`)}</nav>
        <form class="seek" role="search" onSubmit=${(/** @type {any} */ event) => { event.preventDefault(); const text = seek.current.value; seek.current.blur(); go(["search"], { q: text }); }}>
            <input type="search" ref=${seek} name="q" placeholder=${narrow.value ? "Search" : "Search every version  /"} aria-label="Search in every version, or a path" autocomplete="off" spellcheck=${false}
                onKeyDown=${(/** @type {KeyboardEvent} */ event) => { if (event.key === "Escape") seek.current.blur(); }} />
            <span class="live" data-live-state=${state}><span class=${`dot ${state === "live" ? "on" : "off"}`} aria-hidden="true"></span>${state === "live" ? "live" : "no answer"}</span>
            <button type="button" class="plain" aria-label="Keys" title="Keys ( ? )" onClick=${() => { helpOpen.value = true; }}><kbd>?</kbd></button>
        </form>
    </header>`;
}

function App() {
    const { state, problem } = start.value;
    const [Screen, title] = screens[route.value.screen] ?? [Timeline, "Timeline"];
    useEffect(() => {
        document.title = home.value ? `${title}: ${home.value.workspace.name}` : "Safepoint";
    }, [title, home.value?.workspace.name]);
    if (state === "entering") return html`<p class="inner muted spin">Opening</p>`;
    if (state === "locked" || connection.value === "locked") return html`<${Locked} />`;
    if (state === "empty") return html`<main class="screen"><${NoCheckpoint} taken=${() => location.reload()} /></main>`;
    if (state === "failed") return html`<main class="inner"><${Failure} problem=${problem} again=${() => location.reload()} /></main>`;
    return html`<div class=${`app ${connection.value === "gone" ? "stale" : ""}`}>
        <${Bar} /><${Notices} /><${Screen} key=${route.value.screen} /><${Toasts} /><${KeyHelp} /><${LiveRegion} />
    </div>`;
}

async function begin() {
    try {
        if (!await enter()) {
            start.value = { state: "locked" };
            return;
        }
        await refresh();
    } catch (error) {
        const failure = asProblem(error);
        // A folder that is not registered yet has no checkpoint.
        start.value = failure.status === 404 ? { state: "empty" } : failure.status === 401 ? { state: "locked" } : { state: "failed", problem: failure.status === 0 ? gone() : failure };
        return;
    }
    start.value = { state: "in" };
    listen();
}

render(html`<${App} />`, /** @type {Element} */ (document.getElementById("page")));
begin();
