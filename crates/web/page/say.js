// The live region: what changed, in words, at most once in five seconds.
import { html, signal } from "./html.js";

const pause = 5000;
const said = signal("");
let waiting = "";
let timer = 0;
let last = 0;

/** @param {string} words */
export function say(words) {
    waiting = words;
    if (timer) return;
    timer = window.setTimeout(() => {
        timer = 0;
        last = Date.now();
        said.value = waiting;
    }, Math.max(0, last + pause - Date.now()));
}

export function LiveRegion() {
    return html`<div class="unseen" role="status" aria-live="polite" data-live>${said.value}</div>`;
}
