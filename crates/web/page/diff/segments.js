// A line as pieces: where a class or a changed part begins and ends.
import { visible } from "../format.js";
import { html } from "../html.js";

/**
 * @param {string} text
 * @param {[number, number, string][]} spans classes, in order, without overlap
 * @param {[number, number][]} marks changed parts
 * @returns {{ text: string, cls: string, marked: boolean }[]}
 */
export function segments(text, spans, marks) {
    const cuts = new Set([0, text.length]);
    for (const [from, to] of [...spans, ...marks]) cuts.add(Math.min(from, text.length)).add(Math.min(to, text.length));
    const at = [...cuts].sort((a, b) => a - b);
    const pieces = [];
    let span = 0;
    let mark = 0;
    for (let index = 0; index + 1 < at.length; index += 1) {
        const from = at[index] ?? 0;
        const to = at[index + 1] ?? 0;
        while (span < spans.length && (spans[span]?.[1] ?? 0) <= from) span += 1;
        while (mark < marks.length && (marks[mark]?.[1] ?? 0) <= from) mark += 1;
        const inSpan = spans[span] && (spans[span]?.[0] ?? 0) <= from;
        const inMark = marks[mark] && (marks[mark]?.[0] ?? 0) <= from;
        pieces.push({ text: text.slice(from, to), cls: inSpan ? `s-${spans[span]?.[2]}` : "", marked: !!inMark });
    }
    return pieces;
}

/** Letters that would hide or reorder code are shown as escapes; a tab is none of them. @param {string} text */
const shown = (text) => text.split("\t").map(visible).join("\t");

/** @param {{ text: string, spans?: any[], marks?: any[] }} props */
export function Code({ text, spans = [], marks = [] }) {
    if (text === "") return html`<span>${"\u200b"}</span>`;
    return html`${segments(text, /** @type {any} */ (spans), /** @type {any} */ (marks)).map((piece) => (piece.cls || piece.marked
        ? html`<span class=${`${piece.cls}${piece.marked ? " word" : ""}`}>${shown(piece.text)}</span>` : shown(piece.text)))}`;
}
