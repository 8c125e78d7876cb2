// A region that scrolls sideways where its content is wider, and says so.
import { html, useLayoutEffect, useRef, useState } from "./html.js";

/** @param {{ label: string, children?: any }} props */
export function Sideways({ label, children }) {
    const box = useRef(/** @type {any} */ (null));
    const [hidden, setHidden] = useState({ before: false, after: false });
    const look = () => {
        const { scrollLeft, clientWidth, scrollWidth } = box.current;
        const before = scrollLeft > 1;
        const after = scrollLeft + clientWidth < scrollWidth - 1;
        setHidden((old) => (old.before === before && old.after === after ? old : { before, after }));
    };
    useLayoutEffect(() => {
        look();
        const watch = new ResizeObserver(look);
        watch.observe(box.current);
        for (const child of box.current.children) watch.observe(child);
        return () => watch.disconnect();
    }, []);
    const where = hidden.before && hidden.after ? "both" : hidden.before ? "before" : hidden.after ? "after" : "";
    return html`${where && html`<p class="sideways small muted" data-sideways=${where}>${hidden.before ? "← " : ""}More columns: scroll sideways, or press Tab and the arrow keys${hidden.after ? " →" : ""}</p>`}
        <div class="scroll" tabindex="0" role="region" aria-label=${label} ref=${box} onScroll=${look}>${children}</div>`;
}
