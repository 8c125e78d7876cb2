// A window of rows over a list of any length: only what is in view is in the document.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";

/** Browsers stop laying out near 33 million pixels; beyond this, scrolling is scaled. */
const tallest = 14_000_000;
const spare = 6;

/** @typedef {{ rows: number, height: number, top: number, view: number }} Extent */

/** Pixels of the list for one pixel of the scroll bar. @param {Extent} extent */
function scaleOf({ rows, height, view }) {
    const full = rows * height;
    const tall = Math.min(full, tallest);
    return tall > view && full > tall ? (full - view) / (tall - view) : 1;
}

/** The rows to draw, and how far down they begin. @param {Extent} extent */
export function windowOf(extent) {
    const { rows, height, top, view } = extent;
    const full = rows * height;
    const at = Math.max(0, Math.min(top * scaleOf(extent), full - view));
    const shown = Math.ceil(view / height) + 2 * spare;
    const first = Math.max(0, Math.min(Math.floor(at / height) - spare, rows - shown));
    return { first, last: Math.min(rows, first + shown), shift: first * height - at + top, tall: Math.min(full, tallest) };
}

/** The scroll position that brings a row into view. @param {number} row @param {Extent} extent */
export function scrollFor(row, extent) {
    const { height, view, top } = extent;
    const scale = scaleOf(extent);
    const at = top * scale;
    if (row * height < at) return (row * height) / scale;
    if ((row + 1) * height > at + view) return ((row + 1) * height - view) / scale;
    return top;
}

/**
 * @typedef {object} WindowedProps
 * @property {number} rows
 * @property {number} height of one row, in pixels
 * @property {(index: number) => any} row
 * @property {string} label
 * @property {string} [role]
 * @property {string} [group] role between the list and its rows
 * @property {string} [cls]
 * @property {number} [natural] height that all rows need, where the place may be smaller
 * @property {any} [head]
 * @property {number} [columns]
 * @property {number} [focus] the row that must be in view
 * @property {number} [jump] changes when `focus` is to be shown again
 * @property {(first: number, last: number) => void} [onWindow]
 * @property {(event: KeyboardEvent) => void} [onKeyDown]
 */

/** @param {WindowedProps} props */
export function Windowed({ rows, height, row, label, role = "grid", group = "rowgroup", cls = "", natural, head, columns, focus = -1, jump = 0, onWindow, onKeyDown }) {
    const box = useRef(/** @type {any} */ (null));
    const [view, setView] = useState(600);
    const [top, setTop] = useState(0);
    useLayoutEffect(() => {
        const element = box.current;
        const measure = () => {
            setView(element.clientHeight || 600);
            // The head ends where the rows end.
            element.parentElement.style.setProperty("--gutter", `${element.offsetWidth - element.clientWidth}px`);
        };
        measure();
        const watch = new ResizeObserver(measure);
        watch.observe(element);
        return () => watch.disconnect();
    }, [rows * height > view]);
    const { first, last, shift, tall } = windowOf({ rows, height, top, view });
    useEffect(() => onWindow?.(first, last), [first, last, rows]);
    useLayoutEffect(() => {
        if (focus < 0 || focus >= rows) return;
        const element = box.current;
        const next = scrollFor(focus, { rows, height, view: element.clientHeight, top: element.scrollTop });
        if (next !== element.scrollTop) {
            element.scrollTop = next;
            setTop(element.scrollTop);
        }
    }, [focus, jump]);
    const shown = [];
    for (let index = first; index < last; index += 1) shown.push(row(index));
    return html`<div class=${`windowed ${cls}`} role=${role} aria-label=${label} aria-rowcount=${role === "grid" ? rows : undefined} aria-colcount=${columns} style=${natural === undefined ? undefined : { "--natural": `${natural}px` }} onKeyDown=${onKeyDown}>
        ${head}
        <div class="scroller" ref=${box} role=${group} onScroll=${(/** @type {any} */ event) => setTop(event.currentTarget.scrollTop)}>
            <div class="tall" role="presentation" style=${{ height: `${tall}px` }}>
                <div class="shown" role="presentation" style=${{ transform: `translateY(${shift}px)` }}>${shown}</div>
            </div>
        </div>
    </div>`;
}
