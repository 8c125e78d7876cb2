// Results of the search for a good state, by checkpoint.
import { signal } from "../html.js";

/** @type {import("../vendor/signals.js").Signal<Map<string, string>>} */
export const marks = signal(new Map());

/** @param {{ checkpoint: string | null, passed: boolean, skipped: boolean }} tried */
export function mark({ checkpoint, passed, skipped }) {
    if (!checkpoint) return;
    marks.value = new Map(marks.value).set(checkpoint, skipped ? "skipped" : passed ? "passes" : "fails");
}
