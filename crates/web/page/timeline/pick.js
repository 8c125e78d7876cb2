// States chosen for a comparison: up to four.
import { html, signal } from "../html.js";
import { go } from "../route.js";
import { say } from "../say.js";

/** @type {import("../vendor/signals.js").Signal<{ id: string, title: string }[]>} */
export const picked = signal([]);
const most = 4;

/** @param {string} id @param {string} title */
export function togglePick(id, title) {
    const there = picked.value.some((one) => one.id === id);
    picked.value = there ? picked.value.filter((one) => one.id !== id) : [...picked.value, { id, title }].slice(-most);
    say(there ? `${title} is no longer chosen` : `${title} is chosen; ${picked.value.length} to compare`);
}

export function PickBar() {
    const chosen = picked.value;
    if (chosen.length === 0) return null;
    // Older first: differences then read as what came after.
    const compare = () => { const ids = chosen.map((one) => one.id).sort(); picked.value = []; go(["compare", ...ids]); };
    return html`<div class="pickbar row" role="region" aria-label="Compare">
        <span class="strong">Compare</span>
        ${chosen.map((one) => html`<span class="chip mark" key=${one.id}><span class="cut">${one.title}</span>
            <button class="plain tiny" aria-label=${`Leave out ${one.title}`} onClick=${() => togglePick(one.id, one.title)}>✕</button></span>`)}
        ${chosen.length === 1 && html`<span class="muted">with: choose another row, or</span><button onClick=${() => { const id = chosen[0]?.id ?? ""; picked.value = []; go(["compare", id, "present"]); }}>the current state</button>`}
        ${chosen.length > 1 && html`<button class="main" data-compare onClick=${compare}>Compare ${chosen.length}</button>`}
        <button class="plain" onClick=${() => { picked.value = []; }}>Clear</button>
    </div>`;
}
