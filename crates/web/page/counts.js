// Added, modified and removed, with signs beside the colours.
import { html } from "./html.js";

/** @param {{ files: { added: number, modified: number, removed: number } | null }} props */
export function Counts({ files }) {
    if (!files) return html`<span class="counts"></span>`;
    const { added, modified, removed } = files;
    if (added + modified + removed === 0) return html`<span class="counts zero">no change</span>`;
    return html`<span class="counts" aria-label=${`${added} added, ${modified} modified, ${removed} removed`} role="img">
        <span class=${added ? "add" : "zero"}>+${added}</span><span class=${modified ? "modify" : "zero"}>~${modified}</span><span class=${removed ? "remove" : "zero"}>-${removed}</span>
    </span>`;
}

/** @type {Record<string, [string, string]>} */
const signs = {
    added: ["+", "add"], modified: ["~", "modify"], removed: ["-", "remove"], type: ["T", "modify"],
    mode: ["m", "modify"], renamed: [">", "modify"], present: ["·", "muted"],
    rolled_back: ["↶", "muted"],
    restored: ["~", "modify"], created: ["+", "add"], kept: ["=", "muted"],
};

/** @param {{ change: string }} props */
export function Sign({ change }) {
    const [sign, colour] = signs[change] ?? ["?", "muted"];
    return html`<span class=${`sign mono ${colour}`} role="img" aria-label=${change} title=${change}>${sign}</span>`;
}
