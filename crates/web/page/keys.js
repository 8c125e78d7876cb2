// Single keys for a screen. None changes anything unasked, and all can be switched off (WCAG 2.1.4).
import { html, signal, useEffect, useRef } from "./html.js";

const stored = "safepoint-keys";
export const keysOn = signal(localStorage.getItem(stored) !== "off");
export const helpOpen = signal(false);

/** @param {boolean} on */
function switchKeys(on) {
    keysOn.value = on;
    localStorage.setItem(stored, on ? "on" : "off");
}

/** @type {Map<string, (event: KeyboardEvent) => void>[]} */
const layers = [];

/** @param {EventTarget | null} target */
function typing(target) {
    const element = /** @type {HTMLElement | null} */ (target);
    return !!element?.closest("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]");
}

addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !keysOn.value) return;
    if (typing(event.target) || document.querySelector("dialog[open]")) return;
    for (let layer = layers.length - 1; layer >= 0; layer -= 1) {
        const run = layers[layer]?.get(event.key);
        if (run) {
            event.preventDefault();
            run(event);
            return;
        }
    }
});

/** Keys of a screen while it is shown. @param {Record<string, (event: KeyboardEvent) => void>} keys */
export function useKeys(keys) {
    const current = useRef(keys);
    current.current = keys;
    useEffect(() => {
        const layer = new Map(Object.keys(keys).map((key) => [key, (/** @type {KeyboardEvent} */ event) => current.current[key]?.(event)]));
        layers.push(layer);
        return () => {
            layers.splice(layers.indexOf(layer), 1);
        };
    }, [Object.keys(keys).join("\n")]);
}

const meanings = [
    ["j  k", "next and previous row, file or change"],
    ["Enter", "open the row"],
    ["[  ]", "older and newer checkpoint"],
    ["r", "preview a rollback to it; nothing changes before you confirm"],
    ["c", "compare: choose the first state, then the second"],
    ["f", "versions of the file"],
    ["/", "search in every version"],
    ["?", "this list"],
];

export function KeyHelp() {
    const box = useRef(/** @type {any} */ (null));
    useEffect(() => {
        if (helpOpen.value && !box.current.open) box.current.showModal();
        if (!helpOpen.value && box.current?.open) box.current.close();
    }, [helpOpen.value]);
    return html`<dialog ref=${box} aria-labelledby="keys-title" onClose=${() => { helpOpen.value = false; }}>
        <div class="stack">
            <h2 id="keys-title">Keys</h2>
            <dl class="keys">${meanings.map(([keys, meaning]) => html`
                <dt>${(keys ?? "").split("  ").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${meaning}</dd>`)}</dl>
            <label class="check"><input type="checkbox" checked=${keysOn.value}
                onChange=${(/** @type {any} */ event) => switchKeys(event.currentTarget.checked)} /> Single keys are on</label>
            <div class="row"><button autofocus onClick=${() => box.current.close()}>Close</button></div>
        </div>
    </dialog>`;
}
