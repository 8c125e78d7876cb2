// The preview of a rollback, an undo, a redo, a turn, a plan or an attempt; nothing changes before it is confirmed.
import { cancelJob, followWork, post } from "../api.js";
import { count, pathOfKey, short } from "../format.js";
import { home, refresh } from "../home.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { asProblem } from "../load.js";
import { link, route } from "../route.js";
import { Failure, sentence, Words } from "../states.js";
import { titleOf } from "../timeline/words.js";
import { TryTests } from "../search/try.js";
import { dropToasts } from "../toast.js";
import { groupsOf, selection, stepsOf } from "./choice.js";
import { BothDiffs, Effects } from "./effects.js";
import { Paths } from "./paths.js";
import { Result } from "./result.js";

/** Route that confirms each verb. @param {any} asked */
function addressOf(asked) {
    if (asked.verb === "undo" || asked.verb === "redo") return `/${asked.verb}`;
    if (asked.verb === "keep") return `/attempts/${encodeURIComponent(asked.attempt)}/keep`;
    if (asked.verb === "correct") return `/plans/${encodeURIComponent(asked.plan)}/correct`;
    return asked.verb === "plan" ? `/plans/${encodeURIComponent(asked.plan)}/rollback` : "/rollbacks";
}

/** The preview of this screen's address. @param {import("../route.js").Route} at */
function askedOf({ screen, names, query }) {
    if (screen === "turn") return { verb: "turn", turn: Number(names[0]) };
    if (screen === "keep") return { verb: "keep", attempt: names[0] };
    if (screen === "undo" || screen === "redo") return { verb: screen };
    if (screen === "planback") return { verb: "plan", plan: names[0], ...(names[1] ? { to: names[1] } : {}) };
    if (screen === "correct") return { verb: "correct", plan: names[0], ...(names[1] ? { to: names[1] } : {}), ...(query.guidance ? { guidance: query.guidance } : {}) };
    return { verb: "rollback", to: names[0], ...(query.path ? { paths: [pathOfKey(query.path)] } : {}) };
}

export function Rollback() {
    const { screen, names, query } = route.value;
    return html`<main class="screen"><${Preview} key=${JSON.stringify([screen, names, query.path, query.guidance])} asked=${askedOf(route.value)} /></main>`;
}

/** @param {{ asked: any }} props */
function Preview({ asked }) {
    const [choice, setChoice] = useState(/** @type {any} */ ({ off: new Set(), parts: null, later: "keep", failed: "stop" }));
    const [preview, setPreview] = useState(/** @type {any} */ (null));
    const [all, setAll] = useState(/** @type {any} */ (null));
    const [problem, setProblem] = useState(/** @type {any} */ (null));
    const [loading, setLoading] = useState(true);
    const [run, setRun] = useState(/** @type {any} */ (null));
    const [result, setResult] = useState(/** @type {any} */ (null));
    const round = useRef(0);
    const cancel = useRef(/** @type {any} */ (null));
    const groups = groupsOf(merged(all, preview).filter((step) => step.action !== "kept"));
    const fixed = (asked.verb !== "rollback" && asked.verb !== "turn") || !!asked.paths;
    const chosen = selection(groups, choice.off, asked.verb === "turn");
    const empty = groups.length > 0 && groups.every((group) => group.steps.every((step) => choice.off.has(step.key)));
    const wish = {
        ...asked, ...(choice.parts ? { parts: choice.parts } : {}), ...chosen,
        ...(choice.later !== "keep" ? { later: choice.later } : {}), ...(choice.failed !== "stop" ? { failed_undo: choice.failed } : {}),
    };
    const wished = JSON.stringify(wish);
    const look = async () => {
        const own = ++round.current;
        setLoading(true);
        setProblem(null);
        try {
            const next = await post("/previews", wish);
            if (own !== round.current) return;
            setPreview({ ...next, wished, expires: Date.now() + next.expires_in * 1000 });
            if (!chosen) setAll(next);
        } catch (error) {
            if (own !== round.current) return;
            setProblem(asProblem(error));
            // What is on the screen is not what was asked for: it cannot be confirmed.
            setPreview((/** @type {any} */ old) => old && { ...old, expired: true });
        }
        setLoading(false);
    };
    useEffect(() => {
        round.current += 1;
        if (empty) return;
        // A burst of choices is one request; until its answer nothing can be confirmed.
        const timer = setTimeout(look, preview ? 250 : 0);
        return () => clearTimeout(timer);
    }, [wished, empty]);
    useEffect(() => {
        if (!preview) return;
        const timer = setTimeout(() => setPreview((/** @type {any} */ old) => old && { ...old, expired: true }), Math.max(0, preview.expires - Date.now()));
        return () => clearTimeout(timer);
    }, [preview?.preview]);
    useEffect(() => { cancel.current?.focus(); }, [preview === null]);
    // An older message would undo something else after this.
    useEffect(() => dropToasts("undo"), []);
    /** The preview is of exactly these choices, and is the newest one. */
    const current = preview !== null && !loading && !empty && preview.wished === wished;
    const confirm = async () => {
        const began = performance.now();
        const watch = new AbortController();
        setRun({ activity: null });
        setProblem(null);
        followWork(preview.preview, { progress: (job) => setRun(job), signal: watch.signal }).catch(() => {});
        try {
            const { rollback } = await post(addressOf(asked), { ...(asked.verb === "correct" ? { mode: "revert" } : {}), preview: preview.preview });
            setResult({ rollback, ms: performance.now() - began });
            refresh().catch(() => {});
        } catch (error) {
            setProblem(asProblem(error));
            setPreview((/** @type {any} */ old) => old && { ...old, expired: true });
        }
        watch.abort();
        setRun(null);
    };
    const title = preview ? titles(asked, preview) : "Preview";
    if (result) return html`<div class="inner"><${Result} ...${result} title=${done(asked, preview)} /></div>`;
    return html`<div class="inner preview" data-preview=${preview?.preview ?? ""}>
        <header class="head"><div><h1>${title}: nothing has changed yet</h1>
            ${preview && html`<p class="muted small">The current state is kept in a safety checkpoint, and comes back with an undo.${asked.verb === "rollback" && html` <a href=${link(["compare", asked.to, "present"])}>See the differences</a>`}</p>`}</div></header>
        ${problem && html`<${Stopped} problem=${problem} again=${look} asked=${asked} replaceLater=${() => setChoice({ ...choice, off: new Set(), later: "replace" })} />`}
        ${!preview && !problem && html`<p class="muted spin">Comparing with the folder</p>`}
        ${preview && html`<div class="two">
            <section><h2 class="small-head">Paths</h2>
                ${groups.length === 0 ? html`<p class="muted">No path changes: the folder is equal to it already.</p>` : html`<${Paths} groups=${groups} off=${choice.off} fixed=${fixed} taking=${asked.verb === "keep"} shown=${empty ? new Set() : current ? new Set(stepsOf(preview.rollback).map((step) => step.key)) : null} change=${(/** @type {any} */ off) => setChoice({ ...choice, off })} />`}
                ${asked.verb === "rollback" && html`<${PartChoice} preview=${all ?? preview} choice=${choice} disabled=${chosen !== null} change=${(/** @type {any} */ parts) => setChoice({ ...choice, parts })} />`}</section>
            <section class="consequences" aria-live="polite" aria-busy=${loading}><h2 class="small-head">Consequences</h2><${Effects} preview=${preview} turn=${asked.turn ?? null} guidance=${asked.guidance ?? ""} replaceLater=${choice.later === "keep" && asked.verb === "turn" ? () => setChoice({ ...choice, off: new Set(), later: "replace" }) : null} />
                ${preview.rollback.undone?.length > 0 && html`<label class="check small"><input type="checkbox" checked=${choice.failed === "skip"} onChange=${(/** @type {any} */ changed) => setChoice({ ...choice, failed: changed.currentTarget.checked ? "skip" : "stop" })} /> Go on if an undo command fails</label>`}
                ${asked.verb === "rollback" && home.value.test_command && html`<${TryTests} checkpoint=${asked.to} />`}</section>
        </div>
        <${Foot} ...${{ preview, current, empty, run, confirm, look, cancel }} label=${labels(asked, preview)} />`}
    </div>`;
}

/** Paths of the preview of everything, and of the newest one: it may show paths that changed since. @param {any} all @param {any} preview */
function merged(all, preview) {
    const steps = [all, preview].flatMap((one) => (one ? stepsOf(one.rollback) : []));
    return [...new Map(steps.map((step) => [step.key, step])).values()];
}

/** @param {{ preview: any, current: boolean, empty: boolean, run: any, confirm: () => void, look: () => void, cancel: any, label: string }} props */
function Foot({ preview, current, empty, run, confirm, look, cancel, label }) {
    const nothing = stepsOf(preview.rollback).length === 0 && !preview.rollback.plan && !preview.rollback.sessions?.length && !preview.rollback.agents?.length && !preview.rollback.plans?.length && ![preview.rollback.git ?? []].flat().length;
    return html`<footer class="foot row">
        ${run
            ? html`<span class="spin" role="status">${run.activity ?? "Rolling back"}${run.total ? ` ${run.done} of ${run.total}` : ""}</span><button onClick=${() => cancelJob(preview.preview).catch(() => {})}>Stop</button>`
            : html`<button ref=${cancel} data-cancel onClick=${() => history.back()}>Cancel</button>
                ${preview.expired
                    ? html`<button class="main" data-again onClick=${look}>Look again</button><span class="muted small">This preview can no longer be confirmed.</span>`
                    : html`<button class="main" data-confirm data-nothing=${nothing && current ? "" : undefined} disabled=${!current || nothing} onClick=${confirm}>${empty ? "No path is chosen" : current ? label : "Comparing…"}</button>`}`}
    </footer>`;
}

/** The reason why nothing was done, or not all of it. @param {{ problem: import("../api.js").Problem, again: () => void, asked: any, replaceLater: () => void }} props */
function Stopped({ problem, again, asked, replaceLater }) {
    if (problem.code === "turn_overtaken") {
        return html`<section class="failure" role="alert" data-code="turn_overtaken"><h2>Every path of this turn changed again since</h2>
            <p><${Words} text=${sentence(problem.message)} /></p><${BothDiffs} turn=${asked.turn} /><div><button onClick=${replaceLater}>Take them back anyway…</button></div><p class="small muted">You see what would happen first.</p></section>`;
    }
    if (problem.code === "stale_preview") {
        return html`<section class="failure" role="alert" data-code="stale_preview"><h2>${asked.verb === "keep" ? "Not kept: the project or the attempt" : "Not rolled back: the folder"} changed since this preview</h2>
            <p>${sentence(problem.message)}. Nothing was changed. Look at it again to see what would happen now.</p><div><button onClick=${again}>Look again</button></div></section>`;
    }
    if (problem.code === "changed_during_undo") {
        return html`<section class="failure" role="alert" data-code="changed_during_undo"><h2>No file was rolled back</h2>
            <p>${sentence(problem.message)}. The undo commands ran and are not repeated. Look again to see what would happen now.</p><div><button onClick=${again}>Look again</button></div></section>`;
    }
    if (problem.code === "server_gone") {
        return html`<section class="failure" role="alert" data-code="server_gone"><h2>The server stopped</h2>
            <p>The rollback is complete, or the next command undoes it: then the folder is exactly as before.</p><div><button onClick=${again}>Try again</button></div></section>`;
    }
    return html`<${Failure} problem=${problem} again=${again} />`;
}

const defaults = ["files", "plan", "session", "agent"];

/** @param {{ preview: any, choice: any, disabled: boolean, change: (parts: string[] | null) => void }} props */
function PartChoice({ preview, choice, disabled, change }) {
    const kinds = [...new Set(/** @type {string[]} */ ((preview.to?.checkpoint.parts ?? []).map((/** @type {any} */ part) => (part.kind === "git_folder" ? "git" : part.kind))))];
    if (kinds.length < 2) return null;
    const usual = kinds.filter((kind) => defaults.includes(kind));
    const on = choice.parts ?? usual;
    const set = (/** @type {string} */ kind, /** @type {boolean} */ yes) => {
        const next = kinds.filter((one) => (one === kind ? yes : on.includes(one)));
        change(next.length === usual.length && usual.every((one) => next.includes(one)) ? null : next.length ? next : on);
    };
    return html`<fieldset class="parts" disabled=${disabled}><legend class="small-head">Parts</legend>
        <div class="row">${kinds.map((kind) => html`<label class="check" key=${kind}><input type="checkbox" checked=${disabled ? kind === "files" : on.includes(kind)} onChange=${(/** @type {any} */ changed) => set(kind, changed.currentTarget.checked)} /> ${kind}${transition(preview, kind)}</label>`)}</div>
        ${disabled && html`<p class="muted small">With chosen paths, only files.</p>`}</fieldset>`;
}

/** Change of a part, beside its box. @param {any} preview @param {string} kind */
function transition({ rollback }, kind) {
    const words = kind === "plan" && rollback.plan?.state ? [rollback.plan.state] : kind === "session" ? (rollback.sessions ?? []).map((/** @type {any} */ one) => `${one.from} → ${one.to}`) : [];
    return words.length > 0 && html`<span class="muted small">${kind === "plan" ? "then " : ""}${words.join(", ").replaceAll("_", " ")}</span>`;
}

/** @param {any} asked @param {any} preview */
function target(asked, preview) {
    return preview?.to ? titleOf(preview.to) : short(asked.to ?? "");
}

/** @param {any} asked @param {any} preview */
function titles(asked, preview) {
    if (asked.verb === "undo") return "Undo the last rollback";
    if (asked.verb === "redo") return "Redo the last undo";
    if (asked.verb === "turn") return `Take back turn ${asked.turn}`;
    if (asked.verb === "keep") return `Keep attempt ${preview.attempt.name}`;
    if (asked.verb === "correct") return `Correct plan ${asked.plan}: roll back to ${target(asked, preview)}`;
    if (asked.verb === "plan") return `Roll back plan ${asked.plan} to ${target(asked, preview)}`;
    return `Roll back to ${target(asked, preview)}`;
}

/** @param {any} asked @param {any} preview */
function done(asked, preview) {
    if (asked.verb === "undo") return "The last rollback is undone";
    if (asked.verb === "redo") return "The rollback is done again";
    if (asked.verb === "turn") return `Turn ${asked.turn} is taken back`;
    if (asked.verb === "keep") return `Attempt ${preview?.attempt.name} is in the project`;
    if (asked.verb === "correct") return `Plan ${asked.plan} is back at ${target(asked, preview)}`;
    return `Rolled back to ${target(asked, preview)}`;
}

/** @param {any} asked @param {any} preview */
function labels(asked, preview) {
    const many = stepsOf(preview.rollback).filter((step) => step.action !== "kept").length;
    const paths = many === 0 && preview.rollback.plan ? "the plan" : count(many, "path");
    if (asked.verb === "undo" || asked.verb === "redo") return `${asked.verb === "undo" ? "Undo" : "Redo"}: ${paths}`;
    if (asked.verb === "keep") return `Keep ${paths}`;
    return asked.verb === "turn" ? `Take back ${paths}` : `Roll back ${paths}`;
}

