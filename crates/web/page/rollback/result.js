// The result of a rollback, and its undo.
import { count, took } from "../format.js";
import { html, useEffect, useRef } from "../html.js";
import { link } from "../route.js";
import { dropToasts, toast } from "../toast.js";
import { resultWords, undoNow } from "./act.js";
import { PathList } from "./effects.js";

/** @param {{ rollback: any, title: string, ms: number }} props */
export function Result({ rollback, title, ms }) {
    const box = useRef(/** @type {any} */ (null));
    const undone = useRef(false);
    const canUndo = rollback.id && (rollback.verb === "rollback" || rollback.verb === "apply");
    useEffect(() => {
        box.current.focus();
        // An older message would undo something else now.
        dropToasts("undo");
        return () => {
            if (canUndo && !undone.current) toast(title, [{ label: "Undo", run: () => undoNow(rollback.id) }], false, "undo");
        };
    }, []);
    // A person who has gone elsewhere meanwhile stays there.
    const leave = () => { if (box.current) location.hash = link(["timeline"]); };
    const parts = rollback.together ?? [rollback];
    const rescued = parts.flatMap((/** @type {any} */ part) => part.rescued ?? []);
    const waiting = rollback.waiting ?? [];
    const changed = rollback.changed_meanwhile ?? [];
    const failed = (rollback.effects_not_undone ?? []).filter((/** @type {any} */ one) => one.code !== "no_undo_command");
    return html`<section class="card result" data-result>
        <h1 tabindex="-1" ref=${box}><span class="good" aria-hidden="true">✓ </span>${title}</h1>
        <div class="in stack">
            <p>${resultWords(rollback)}, in ${took(ms)}.</p>
            ${rescued.length > 0 && html`<div><p>${count(rescued.length, "edit")} made during the rollback ${rescued.length === 1 ? "was" : "were"} rescued: <a href=${link(["checkpoint", rescued[0].checkpoint_or_object])}>see</a></p><${PathList} paths=${rescued.map((/** @type {any} */ one) => one.path)} /></div>`}
            ${waiting.length > 0 && html`<div><p>${count(waiting.length, "path")} still open in another program: the old content is kept until it is closed.</p><${PathList} paths=${waiting} /></div>`}
            ${changed.length > 0 && html`<div><p>Changed by another program after it was put in place:</p><${PathList} paths=${changed} /></div>`}
            ${failed.length > 0 && html`<p class="modify">${count(failed.length, "undo command")} did not work; see the plan.</p>`}
            ${rollback.safety_checkpoint && html`<p class="muted">The state before it is in a <a href=${link(["checkpoint", rollback.safety_checkpoint])}>safety checkpoint</a>.</p>`}
            <div class="row">${canUndo && html`<button data-undo onClick=${() => { undone.current = true; undoNow(rollback.id).then(leave); }}>Undo</button>`}
                <a class="button" href="#/timeline">Timeline</a></div>
        </div>
    </section>`;
}
