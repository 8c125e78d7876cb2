// The treemap of what deleting frees; the table below it says the same in numbers.
import { short, size } from "../format.js";
import { html, useLayoutEffect, useRef, useState } from "../html.js";
import { squarify } from "./squarify.js";

const tilesShown = 60;
const tall = 200;

/** @param {{ usage: any, own: string, chosen: Set<string>, toggle: (id: string) => void }} props */
export function Treemap({ usage, own, chosen, toggle }) {
    const box = useRef(/** @type {any} */ (null));
    const [wide, setWide] = useState(0);
    useLayoutEffect(() => {
        const measure = () => setWide(box.current.clientWidth);
        measure();
        const watch = new ResizeObserver(measure);
        watch.observe(box.current);
        return () => watch.disconnect();
    }, []);
    const weighed = usage.checkpoints.filter((/** @type {any} */ one) => one.workspace_id === own && one.frees_bytes > 0).sort((/** @type {any} */ a, /** @type {any} */ b) => b.frees_bytes - a.frees_bytes);
    const rest = weighed.slice(tilesShown).reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.frees_bytes, 0);
    const others = usage.workspaces.filter((/** @type {any} */ one) => one.workspace.id !== own && one.frees_bytes > 0).map((/** @type {any} */ one) => ({ other: one.workspace.name, frees_bytes: one.frees_bytes }));
    const items = [...weighed.slice(0, tilesShown), ...(rest ? [{ other: "smaller checkpoints", frees_bytes: rest }] : []), ...others].sort((a, b) => b.frees_bytes - a.frees_bytes);
    const tiles = wide ? squarify(items, (one) => one.frees_bytes, { x: 0, y: 0, width: wide, height: tall }) : [];
    return html`<div class="treemap" ref=${box} style=${{ height: `${tall}px` }} aria-hidden="true">${tiles.map(({ item, x, y, width, height }) => {
        const words = `${item.other ?? item.label ?? short(item.id)}, ${size(item.frees_bytes)}`;
        return html`<div class=${`tile ${item.id && chosen.has(item.id) ? "chosen" : ""} ${item.other || item.pinned ? "fixed" : ""}`} key=${item.id ?? item.other} title=${words}
            style=${{ left: `${x}px`, top: `${y}px`, width: `${Math.max(0, width - 2)}px`, height: `${Math.max(0, height - 2)}px` }} onClick=${() => { if (item.id && !item.pinned) toggle(item.id); }}>
            ${width > 60 && height > 22 ? html`<span class="cut small">${item.other ?? item.label ?? short(item.id)}</span>` : ""}${width > 60 && height > 42 ? html`<span class="small">${size(item.frees_bytes)}</span>` : ""}</div>`;
    })}${tiles.length === 0 && wide > 0 && html`<p class="muted hint">Deleting no single checkpoint frees space: all share their content.</p>`}</div>`;
}
