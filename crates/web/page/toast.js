// Short messages about verbs that ended, with their next actions.
import { html, signal } from "./html.js";
import { say } from "./say.js";

/** @typedef {{ id: number, text: string, bad: boolean, group: string, actions: { label: string, run: () => void }[] }} Toast */

/** @type {import("./vendor/signals.js").Signal<Toast[]>} */
const toasts = signal([]);
let next = 1;

/** @param {number} id */
function drop(id) {
    toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

/** A message of a group takes the place of the older one. @param {string} text @param {Toast["actions"]} [actions] @param {boolean} [bad] @param {string} [group] */
export function toast(text, actions = [], bad = false, group = "") {
    const id = next++;
    toasts.value = [...toasts.value.filter((old) => !group || old.group !== group).slice(-2), { id, text, bad, group, actions }];
    say(text);
    // A toast with an action stays until it is used or closed (WCAG 2.2.1).
    if (actions.length === 0) setTimeout(drop, 8000, id);
}

/** Takes the messages of a group away. @param {string} group */
export function dropToasts(group) {
    toasts.value = toasts.value.filter((old) => old.group !== group);
}

export function Toasts() {
    return html`<section class="toasts" aria-label="Messages">${toasts.value.map((toast) => html`
        <div class="toast" key=${toast.id}>
            <span class=${toast.bad ? "remove" : ""}>${toast.text}</span>
            ${toast.actions.map((action) => html`<button onClick=${() => { drop(toast.id); action.run(); }}>${action.label}</button>`)}
            <button class="plain" aria-label="Close message" onClick=${() => drop(toast.id)}>✕</button>
        </div>`)}</section>`;
}
