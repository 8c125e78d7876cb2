// The heat strip: changed paths over the timeline; a drag, or shift and arrows, chooses a range.
import { ask } from "../api.js";
import { clock, count, whole } from "../format.js";
import { now } from "../home.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";

/** Narrowest target (WCAG 2.5.8). */
const narrowest = 24;
/** Padding of the strip on each side. */
const edge = 16;

/** @typedef {{ first: number, last: number, from: string, to: string, checkpoints: number, changed: number }} Bucket */

/** @param {{ version: unknown, ready: boolean, range: { from: number, before: number } | null, choose: (range: { from: number, before: number, words: string } | null) => void }} props */
export function Strip({ version, ready, range, choose }) {
    const box = useRef(/** @type {any} */ (null));
    const [many, setMany] = useState(0);
    const [buckets, setBuckets] = useState(/** @type {Bucket[]} */ ([]));
    const [anchor, setAnchor] = useState(-1);
    const [at, setAt] = useState(-1);
    const dragging = useRef(false);
    useLayoutEffect(() => {
        const measure = () => setMany(Math.max(4, Math.min(60, Math.floor((box.current.clientWidth - 2 * edge) / (narrowest + 1)))));
        measure();
        const watch = new ResizeObserver(measure);
        watch.observe(box.current);
        return () => watch.disconnect();
    }, []);
    useEffect(() => {
        // The sum over all checkpoints must not be in the way of the rows.
        if (!many || !ready) return;
        ask("/strip", { query: { buckets: many } }).then((answer) => setBuckets(answer.buckets), () => {});
    }, [many, version, ready]);
    const most = Math.max(1, ...buckets.map((bucket) => bucket.changed));
    const low = Math.min(anchor, at);
    const high = Math.max(anchor, at);
    /** @param {number} from @param {number} to */
    const pick = (from, to) => {
        const first = buckets[Math.min(from, to)];
        const last = buckets[Math.max(from, to)];
        if (first && last) choose({ from: first.first, before: last.last + 1, words: `${whole(first.from)} to ${whole(last.to)}` });
    };
    const finish = () => {
        if (!dragging.current) return;
        dragging.current = false;
        pick(anchor, at);
    };
    /** @param {KeyboardEvent} event */
    const key = (event) => {
        const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (move) {
            const next = Math.max(0, Math.min(buckets.length - 1, (at < 0 ? buckets.length - 1 : at) + (at < 0 ? 0 : move)));
            setAt(next);
            if (!event.shiftKey || anchor < 0) setAnchor(next);
            box.current.children[next]?.focus();
        } else if (event.key === "Enter" || event.key === " ") {
            pick(anchor < 0 ? at : anchor, at);
        } else if (event.key === "Escape") {
            setAnchor(-1);
            setAt(-1);
            choose(null);
        } else {
            return;
        }
        event.preventDefault();
    };
    /** @param {Bucket} bucket @param {number} index */
    const chosen = (bucket, index) => (dragging.current || anchor >= 0 ? index >= low && index <= high : !!range && bucket.first >= range.from && bucket.last < range.before);
    const [oldest, newest] = [buckets[0], buckets[buckets.length - 1]];
    return html`<div class="strip" ref=${box} role="listbox" aria-multiselectable="true" aria-label="Changed paths over time; shift and arrows choose a range"
        onKeyDown=${key} onPointerUp=${finish} onPointerLeave=${finish}>
        ${buckets.map((bucket, index) => {
            const words = `${whole(bucket.from)} to ${whole(bucket.to)}: ${count(bucket.checkpoints, "checkpoint")}, ${count(bucket.changed, "path")} changed`;
            const heat = bucket.changed === 0 ? 0 : Math.max(0.12, Math.sqrt(bucket.changed / most));
            return html`<div class="heat" key=${index} role="option" tabindex=${index === (at < 0 ? buckets.length - 1 : at) ? 0 : -1} aria-label=${words} title=${words}
                aria-selected=${chosen(bucket, index) && (range !== null || anchor >= 0)}
                onPointerDown=${(/** @type {PointerEvent} */ event) => { if (event.button !== 0) return; dragging.current = true; setAnchor(index); setAt(index); }}
                onPointerEnter=${() => { if (dragging.current) setAt(index); }}>
                <span class="bar-of" style=${{ height: `${Math.round(heat * 100)}%` }}></span></div>`;
        })}
    </div>
    ${oldest && newest && html`<div class="strip-ends small muted wide" aria-hidden="true"><span>${clock(oldest.from, now.value)}</span><span>paths changed; as many checkpoints in each bar</span><span>${clock(newest.to, now.value)}</span></div>`}`;
}
