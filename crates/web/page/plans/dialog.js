// A dialog that opens when drawn and closes by Escape, Cancel or its verb.
import { html, useEffect, useRef } from "../html.js";

/** @param {{ title: string, close: () => void, children: any }} props */
export function Dialog({ title, close, children }) {
    const box = useRef(/** @type {any} */ (null));
    useEffect(() => {
        box.current.showModal();
    }, []);
    return html`<dialog ref=${box} aria-label=${title} onClose=${close}><div class="stack"><h2>${title}</h2>${children}</div></dialog>`;
}
