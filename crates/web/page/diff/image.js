// Pictures: side by side, or one over the other with a swipe.
import { answer, pathQuery } from "../api.js";
import { size } from "../format.js";
import { html, useEffect, useState } from "../html.js";

/**
 * The address of a picture; the bytes are read with the key, so the address is one of this page alone.
 * @param {string | null} checkpoint @param {import("../api.js").Path} path
 */
function usePicture(checkpoint, path) {
    const [url, setUrl] = useState("");
    useEffect(() => {
        setUrl("");
        if (!checkpoint) return;
        let made = "";
        let current = true;
        answer("/raw", { query: { checkpoint, path: pathQuery(path) } }).then(async (response) => {
            const blob = await response.blob();
            if (!current) return;
            made = URL.createObjectURL(blob);
            setUrl(made);
        }, () => {});
        return () => {
            current = false;
            if (made) URL.revokeObjectURL(made);
        };
    }, [checkpoint, JSON.stringify(path)]);
    return url;
}

/**
 * @param {{ old: { checkpoint: string | null, path: any, side: any }, now: { checkpoint: string | null, path: any, side: any } }} props
 */
export function Pictures({ old, now }) {
    const before = usePicture(old.side && old.checkpoint, old.path);
    const after = usePicture(now.side && now.checkpoint, now.path);
    const [swipe, setSwipe] = useState(false);
    const [at, setAt] = useState(50);
    const both = before && after;
    return html`<div class="pictures stack">
        ${both && html`<div class="group" role="group" aria-label="How to compare">
            <button aria-pressed=${!swipe} onClick=${() => setSwipe(false)}>Side by side</button>
            <button aria-pressed=${swipe} onClick=${() => setSwipe(true)}>Swipe</button></div>`}
        ${both && swipe
            ? html`<div class="swipe"><img src=${before} alt="Before" /><img class="over" src=${after} alt="After" style=${{ clipPath: `inset(0 0 0 ${at}%)` }} /></div>
                <label class="row small">Before <input type="range" min="0" max="100" value=${at} aria-label="Position of the swipe" onInput=${(/** @type {any} */ moved) => setAt(Number(moved.currentTarget.value))} /> After</label>`
            : html`<div class="beside">${/** @type {[string, string, typeof old][]} */ ([["Before", before, old], ["After", after, now]]).map(([word, url, one]) => html`
                <figure><figcaption class="small muted">${word}${one.side ? `, ${size(one.side.size)}` : ""}</figcaption>
                ${one.side === null ? html`<p class="muted">does not exist</p>` : url ? html`<img src=${url} alt=${word} />` : html`<p class="muted">Loading</p>`}</figure>`)}</div>`}
    </div>`;
}
