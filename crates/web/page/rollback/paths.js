// The paths of a preview, to choose from.
import { Sign } from "../counts.js";
import { html, useState } from "../html.js";
import { actionWords, tallyWords } from "./choice.js";

const shownAtOnce = 200;

/**
 * @param {{ groups: import("./choice.js").Group[], off: Set<string>, shown: Set<string> | null, change: (off: Set<string>) => void, fixed: boolean, taking: boolean }} props
 * `shown` are the keys of the current preview: what happens is said by it, and not by the boxes.
 */
export function Paths({ groups, off, shown, change, fixed, taking }) {
    /** @type {Record<string, string> & { restored: string, created: string }} */
    const words = actionWords[taking ? "over" : "back"];
    const [open, setOpen] = useState(/** @type {Set<string>} */ (new Set()));
    const [most, setMost] = useState(shownAtOnce);
    /** @param {import("./choice.js").Step[]} steps @param {boolean} on */
    const set = (steps, on) => {
        const next = new Set(off);
        for (const step of steps) if (on) next.delete(step.key); else next.add(step.key);
        change(next);
    };
    const toggle = (/** @type {string} */ name) => {
        const next = new Set(open);
        if (!next.delete(name)) next.add(name);
        setOpen(next);
    };
    const goes = (/** @type {import("./choice.js").Step} */ step) => (shown ? shown.has(step.key) : !off.has(step.key));
    return html`<ul class="choices">${groups.slice(0, most).map((group) => {
        const on = group.steps.filter((step) => !off.has(step.key)).length;
        const going = group.steps.filter(goes);
        const single = group.steps.length === 1 && !group.name.endsWith("/");
        const isOpen = open.has(group.name);
        return html`<li key=${group.name}>
            <div class="choice">
                ${!fixed && html`<input type="checkbox" aria-label=${`Roll back ${group.name}`} checked=${on > 0} indeterminate=${on > 0 && on < group.steps.length}
                    onChange=${(/** @type {any} */ changed) => set(group.steps, changed.currentTarget.checked)} />`}
                ${single ? html`<${Sign} change=${group.steps[0]?.action ?? ""} />` : html`<button class="plain twist" aria-expanded=${isOpen} aria-label=${`Paths in ${group.name}`} onClick=${() => toggle(group.name)}>${isOpen ? "▾" : "▸"}</button>`}
                <span class="mono cut">${group.name}</span><span class="small muted nowrap">${going.length === 0 ? "stays as it is" : tallyWords(going, words)}</span>
            </div>
            ${!single && isOpen && html`<ul class="choices inner-choices">${group.steps.slice(0, most).map((step) => html`<li class="choice" key=${step.key}>
                ${!fixed && html`<input type="checkbox" aria-label=${`Roll back ${step.text}`} checked=${!off.has(step.key)} onChange=${(/** @type {any} */ changed) => set([step], changed.currentTarget.checked)} />`}
                <${Sign} change=${step.action} /><span class="mono cut">${step.text.slice(group.name.length) || step.text}</span><span class="small muted">${goes(step) ? words[step.action] ?? step.action : "stays as it is"}</span></li>`)}
                ${group.steps.length > most && html`<li><button class="plain" onClick=${() => setMost(most * 5)}>${(group.steps.length - most).toLocaleString("en")} more</button></li>`}</ul>`}
        </li>`;
    })}${groups.length > most && html`<li><button class="plain" onClick=${() => setMost(most * 5)}>${(groups.length - most).toLocaleString("en")} more</button></li>`}</ul>`;
}
