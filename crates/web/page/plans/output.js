// Output of a step, as it comes: asked for again each second while the step runs.
import { ask } from "../api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { asProblem } from "../load.js";
import { flat } from "./steps.js";

const pause = 700;
/** Characters kept in the document. */
const kept = 200_000;

/** @param {{ plan: string, step: string, steps: any[], version: number, running: boolean }} props */
export function Output({ plan, step, steps, version, running }) {
    const [text, setText] = useState("");
    const [state, setState] = useState(/** @type {{ running: boolean, attempt: number, problem: string }} */ ({ running: false, attempt: 0, problem: "" }));
    const box = useRef(/** @type {any} */ (null));
    const follow = useRef(true);
    const after = useRef(0);
    useEffect(() => {
        setText("");
        after.current = 0;
        follow.current = true;
    }, [plan, step]);
    useEffect(() => {
        if (!step) return;
        let current = true;
        let timer = 0;
        const get = async () => {
            try {
                const answer = await ask(`/plans/${encodeURIComponent(plan)}/output`, { query: { step, after: after.current || undefined } });
                if (!current) return;
                // Another attempt begins its output anew.
                setText((old) => (after.current > answer.next ? answer.text : old + answer.text).slice(-kept));
                after.current = answer.next;
                setState({ running: answer.running, attempt: answer.attempt, problem: "" });
                if (answer.running || running) timer = window.setTimeout(get, pause);
            } catch (error) {
                if (current) setState({ running: false, attempt: 0, problem: asProblem(error).status === 404 ? "" : asProblem(error).message });
            }
        };
        get();
        return () => {
            current = false;
            clearTimeout(timer);
        };
    }, [plan, step, version, running]);
    useLayoutEffect(() => {
        if (follow.current && box.current) box.current.scrollTop = box.current.scrollHeight;
    }, [text]);
    const of = flat(steps).find((one) => one.path === step);
    return html`<section class="output"><h2 class="small-head row"><span class="mono">${step}</span>${state.attempt > 0 && html`<span class="muted">attempt ${state.attempt}${of?.retries ? ` of ${of.retries + 1}` : ""}</span>`}${state.running && html`<span class="chip mark">live</span>`}</h2>
        ${of?.run && html`<p class="small"><code>$ ${of.run}</code></p>`}
        ${state.problem && html`<p class="remove small">${state.problem}</p>`}
        <pre class="terminal" tabindex="0" role="region" aria-label=${`Output of ${step}`} ref=${box} data-output
            onScroll=${() => { const element = box.current; follow.current = element.scrollTop + element.clientHeight >= element.scrollHeight - 8; }}>${text || (of?.run ? "(no output yet)" : "(a step without a command)")}</pre></section>`;
}
