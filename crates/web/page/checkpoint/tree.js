// Paths as a tree: changed ones at once, all ones folder by folder.
import { Sign } from "../counts.js";
import { html, useEffect, useRef } from "../html.js";
import { useKeys } from "../keys.js";
import { Windowed } from "../windowed.js";

/** @typedef {import("./nodes.js").Node} Node */

/** @param {{ nodes: Node[], chosen: string, choose: (node: Node) => void, toggle: (node: Node) => void, label: string, keys?: boolean }} props */
export function Tree({ nodes, chosen, choose, toggle, label, keys = true }) {
    const at = Math.max(0, nodes.findIndex((node) => node.key === chosen));
    const moved = useRef(false);
    /** @param {number} step */
    const next = (step) => {
        for (let index = at + step; index >= 0 && index < nodes.length; index += step) {
            const node = nodes[index];
            if (node && !node.folder) return choose(node);
        }
    };
    useKeys(keys ? { j: () => next(1), k: () => next(-1) } : {});
    useEffect(() => {
        if (!moved.current) return;
        moved.current = false;
        /** @type {HTMLElement | null} */ (document.querySelector(`.tree [data-node="${at}"]`))?.focus({ preventScroll: true });
    });
    /** @param {KeyboardEvent} event */
    const arrows = (event) => {
        const index = Number(/** @type {HTMLElement} */ (event.target).dataset.node ?? at);
        const node = nodes[index];
        if (!node) return;
        if (event.key === "ArrowDown" || event.key === "ArrowUp") focusNode(index + (event.key === "ArrowDown" ? 1 : -1));
        else if (event.key === "Enter" || event.key === " ") { if (node.folder) toggle(node); else choose(node); }
        else if (node.folder && ((event.key === "ArrowRight" && !node.open) || (event.key === "ArrowLeft" && node.open))) toggle(node);
        else return;
        event.preventDefault();
        event.stopPropagation();
    };
    const row = (/** @type {number} */ index) => {
        const node = nodes[index];
        if (!node) return null;
        const selected = node.key === chosen;
        return html`<div class=${`node-row ${selected ? "chosen" : ""} ${node.folder ? "folder" : ""}`} key=${node.key} role="treeitem" data-node=${index} data-path=${node.key}
            aria-level=${node.level} aria-selected=${selected} aria-expanded=${node.folder ? !!node.open : undefined} tabindex=${index === at ? 0 : -1}
            style=${{ paddingLeft: `${8 + (node.level - 1) * 14}px` }} onClick=${() => { moved.current = true; if (node.folder) toggle(node); else choose(node); }}>
            ${node.folder ? html`<span class="twist" aria-hidden="true">${node.open ? "▾" : "▸"}</span>` : node.sign ? html`<${Sign} change=${node.sign} />` : html`<span class="sign"></span>`}
            <span class="cut mono" title=${node.key}>${node.name}</span>
            <span class="aside small muted">${node.folder ? node.inside ?? "" : node.aside ?? ""}</span>
        </div>`;
    };
    return html`<${Windowed} rows=${nodes.length} natural=${nodes.length * 26} height=${26} row=${row} label=${label} role="tree" group="presentation" cls="tree" focus=${at} onKeyDown=${arrows} />`;
}

/** @param {number} index */
function focusNode(index) {
    /** @type {HTMLElement | null} */ (document.querySelector(`.tree [data-node="${index}"]`))?.focus();
}
