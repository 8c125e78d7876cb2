// Disk usage: what deleting which checkpoints frees, first as a dry run.
import { ask, post } from "../api.js";
import { count, short, shortLabel, size, whole } from "../format.js";
import { home, refresh } from "../home.js";
import { html, useEffect, useState } from "../html.js";
import { Dialog } from "../plans/dialog.js";
import { asProblem, Loaded, useLoad } from "../load.js";
import { link } from "../route.js";
import { Command } from "../states.js";
import { toast } from "../toast.js";
import { Treemap } from "./treemap.js";

const rowsShown = 200;

export function Disk() {
    const load = useLoad(() => ask("/usage"), []);
    return html`<main class="screen"><div class="inner"><header class="head"><h1>Disk</h1></header>
        <${Loaded} load=${load} words="Weighing checkpoints">${(/** @type {any} */ usage) => html`<${Usage} usage=${usage} again=${load.again} />`}<//></div></main>`;
}

/** @param {{ usage: any, again: () => void }} props */
function Usage({ usage, again }) {
    const [chosen, setChosen] = useState(/** @type {Set<string>} */ (new Set()));
    const [trial, setTrial] = useState(/** @type {any} */ (null));
    const [busy, setBusy] = useState(false);
    const [asking, setAsking] = useState(false);
    const own = home.value.workspace.id;
    const here = usage.checkpoints.filter((/** @type {any} */ one) => one.workspace_id === own).sort((/** @type {any} */ a, /** @type {any} */ b) => b.frees_bytes - a.frees_bytes);
    const locked = home.value.read_only;
    const toggle = (/** @type {string} */ id) => {
        if (locked) return;
        const next = new Set(chosen);
        if (!next.delete(id)) next.add(id);
        setTrial(null);
        setChosen(next);
    };
    const run = async (/** @type {boolean} */ dry) => {
        setBusy(true);
        try {
            const answer = await post("/deletions", { checkpoints: [...chosen], dry_run: dry });
            if (dry) setTrial(answer);
            else {
                toast(`${count(answer.checkpoints.length, "checkpoint")} deleted; the next collection frees the space`);
                setChosen(new Set());
                setTrial(null);
                await refresh();
                again();
            }
        } catch (error) {
            toast(asProblem(error).message, [], true);
        }
        setBusy(false);
    };
    // Choosing is the dry run: it deletes nothing.
    useEffect(() => {
        if (chosen.size > 0 && !home.value.read_only) run(true);
    }, [chosen]);
    const { cap_bytes: cap } = usage.cap;
    return html`<section class="facts-line row"><span class="figure"><span class="strong">${size(usage.home_bytes)}</span> on the disk${cap ? ` of at most ${size(cap)}` : ""}</span><span class="muted">${size(usage.shared_bytes)} needed by several checkpoints, ${size(usage.dead_bytes)} by none</span>${usage.dead_bytes > 0 && html`<${Command} text="safepoint gc" />`}</section>
        ${cap > 0 && html`<div class="meter" role="meter" aria-label="Of the cap" aria-valuemin="0" aria-valuemax=${cap} aria-valuenow=${usage.home_bytes}><span style=${{ width: `${Math.min(100, (usage.home_bytes / cap) * 100)}%` }}></span></div>`}
        <h2 class="small-head">Freed by deleting</h2>
        <${Treemap} usage=${usage} own=${own} chosen=${chosen} toggle=${toggle} />
        <div class="actions row">${locked ? html`<span class="muted">The server is read-only: nothing can be chosen here.</span>` : chosen.size === 0 ? html`<span class="muted">Choose checkpoints to see how much deleting them frees.</span>`
            : html`<span role="status" data-freed>${trial ? html`Deleting ${count(trial.checkpoints.length, "checkpoint")} frees <span class="strong">${size(trial.frees_bytes ?? 0)}</span>; nothing is deleted yet.` : html`<span class="spin"></span>Weighing`}</span>
                <button disabled=${!trial || busy} onClick=${() => setAsking(true)}>Delete ${chosen.size}…</button>`}
            ${asking && trial && html`<${Dialog} title=${`Delete ${count(trial.checkpoints.length, "checkpoint")} for good?`} close=${() => setAsking(false)}><p>This frees ${size(trial.frees_bytes ?? 0)} and cannot be undone. The folder stays as it is.</p>
                <div class="row"><button autofocus onClick=${() => setAsking(false)}>Cancel</button><button class="main" disabled=${busy} onClick=${() => { setAsking(false); run(false); }}>Delete</button></div><//>`}
            ${chosen.size > 0 && html`<button class="plain" onClick=${() => { setChosen(new Set()); setTrial(null); }}>Clear</button>`}</div>
        <div class="scroll" tabindex="0" role="region" aria-label="Checkpoints by bytes freed"><table class="list usage"><caption class="unseen">Checkpoints by bytes freed</caption><thead><tr><th><span class="unseen">Choose</span></th><th>Checkpoint</th><th class="wide">When</th><th class="number">Deleting it frees</th></tr></thead><tbody>
            ${here.slice(0, rowsShown).map((/** @type {any} */ one) => html`<tr key=${one.id}><td><input type="checkbox" disabled=${one.pinned || locked} aria-label=${`Choose ${one.label ?? short(one.id)}`} checked=${chosen.has(one.id)} onChange=${() => toggle(one.id)} /></td>
                <td><a href=${link(["checkpoint", one.id])}>${one.label ? shortLabel(one.label) : short(one.id)}</a>${one.pinned && html` <span class="chip">pinned</span>`}${one.damaged && html` <span class="chip bad">damaged</span>`}</td><td class="muted nowrap wide">${whole(one.created_at)}</td><td class="number">${size(one.frees_bytes)}</td></tr>`)}
        </tbody></table>${usage.total > rowsShown && html`<p class="muted small">The largest ${rowsShown} of ${usage.total.toLocaleString("en")}.</p>`}</div>
        <h2 class="small-head">Workspaces</h2>
        <table class="list"><caption class="unseen">Workspaces</caption><thead><tr><th>Workspace</th><th class="number">Checkpoints</th><th class="number">Deleting all frees</th></tr></thead><tbody>
            ${usage.workspaces.map((/** @type {any} */ one) => html`<tr key=${one.workspace.id}><td>${one.workspace.name}${one.workspace.id === own ? html` <span class="chip mark">this one</span>` : ""}</td><td class="number">${one.checkpoints.toLocaleString("en")}</td><td class="number">${size(one.frees_bytes)}</td></tr>`)}</tbody></table>`;
}
