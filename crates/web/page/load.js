// A value from the server with its states: loading, there, failed.
import { Problem } from "./api.js";
import { html, useEffect, useState } from "./html.js";
import { Failure } from "./states.js";

/**
 * Loads when `on` changes; the older value stays until the newer one is there.
 * @template T
 * @param {() => Promise<T>} get @param {readonly unknown[]} on
 * @returns {{ value: T | null, problem: Problem | null, loading: boolean, again: () => void }}
 */
export function useLoad(get, on) {
    const [state, setState] = useState(/** @type {{ value: T | null, problem: Problem | null, loading: boolean }} */ ({ value: null, problem: null, loading: true }));
    const [round, setRound] = useState(0);
    useEffect(() => {
        let current = true;
        setState((old) => ({ ...old, loading: true }));
        get().then(
            (value) => { if (current) setState({ value, problem: null, loading: false }); },
            (error) => { if (current) setState((old) => ({ value: old.value, problem: asProblem(error), loading: false })); },
        );
        return () => { current = false; };
    }, [...on, round]);
    return { ...state, again: () => setRound((old) => old + 1) };
}

/** @param {unknown} error */
export function asProblem(error) {
    if (error instanceof Problem) return error;
    const detail = error instanceof Error ? error.message : String(error);
    return new Problem({ type: "", title: detail, status: 0, code: "page", kind: "internal", detail, causes: [], hints: [] });
}

/**
 * The loaded value drawn, or the state in its place.
 * @param {{ load: ReturnType<typeof useLoad>, children: (value: any) => any, words?: string }} props
 */
export function Loaded({ load, children, words = "Loading" }) {
    const draw = Array.isArray(children) ? children[0] : children;
    if (load.value === null && load.problem) return html`<div class="inner"><h1 class="unseen">Not shown</h1><${Failure} problem=${load.problem} again=${load.again} /></div>`;
    if (load.value === null) return html`<p class="inner muted spin">${words}</p>`;
    return html`${load.problem && html`<${Failure} problem=${load.problem} again=${load.again} />`}${draw(load.value)}`;
}
