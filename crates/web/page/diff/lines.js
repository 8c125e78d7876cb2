// The rows of a difference of text: side by side, or one below the other.
import { html } from "../html.js";
import { Code } from "./segments.js";

/**
 * @typedef {{ op: "equal" | "delete" | "insert" | "replace", old: number | null, new: number | null, old_text: string | null, new_text: string | null,
 *   old_spans: any[], new_spans: any[], old_marks: any[], new_marks: any[] }} DiffRow
 * @typedef {{ old_start: number, old_lines: number, new_start: number, new_lines: number, rows: DiffRow[] }} Hunk
 */

/** Equal lines between two hunks. @param {Hunk | undefined} before @param {Hunk} hunk */
export function gap(before, hunk) {
    return hunk.new_start - (before ? before.new_start + before.new_lines : 1);
}

/**
 * Deleted lines before inserted ones, as one column shows them.
 * @param {DiffRow[]} rows @returns {{ sign: string, old: number | null, new: number | null, text: string, spans: any[], marks: any[] }[]}
 */
export function inlineRows(rows) {
    /** @type {ReturnType<typeof inlineRows>} */
    const lines = [];
    /** @type {ReturnType<typeof inlineRows>} */
    let inserted = [];
    for (const row of rows) {
        if (row.op === "equal") {
            lines.push(...inserted, { sign: " ", old: row.old, new: row.new, text: row.old_text ?? "", spans: row.old_spans, marks: [] });
            inserted = [];
            continue;
        }
        if (row.old_text !== null) lines.push({ sign: "-", old: row.old, new: null, text: row.old_text, spans: row.old_spans, marks: row.old_marks });
        if (row.new_text !== null) inserted.push({ sign: "+", old: null, new: row.new, text: row.new_text, spans: row.new_spans, marks: row.new_marks });
    }
    return [...lines, ...inserted];
}

/** @type {Record<string, string>} */
const classes = { "-": "out", "+": "in", " ": "" };

/** @param {{ hunks: Hunk[], view: string, label: string, more: (equal: number) => void, firstPage: boolean }} props */
export function Lines({ hunks, view, label, more, firstPage }) {
    const split = view === "split";
    return html`<div class="lines" tabindex="0" role="region" aria-label=${label}>
        <table class=${`difference ${split ? "split" : "inline"}`}>
            <caption class="unseen">${label}</caption>
            <colgroup>${split ? html`<col class="no" /><col /><col class="no" /><col />` : html`<col class="no" /><col class="no" /><col />`}</colgroup>
            <thead class="unseen"><tr>${split
                ? html`<th>Old line</th><th>Old text</th><th>New line</th><th>New text</th>`
                : html`<th>Old line</th><th>New line</th><th>Text</th>`}</tr></thead>
            ${hunks.map((hunk, index) => {
                const equal = index === 0 && !firstPage ? 0 : gap(hunks[index - 1], hunk);
                return html`<tbody key=${`${hunk.old_start}-${hunk.new_start}`} data-hunk>
                    ${equal > 0 && html`<tr class="gap"><td colspan=${split ? 4 : 3}><button class="plain small" onClick=${() => more(equal)}>⋯ ${equal.toLocaleString("en")} equal ${equal === 1 ? "line" : "lines"}</button></td></tr>`}
                    ${split ? hunk.rows.map(splitRow) : inlineRows(hunk.rows).map(inlineRow)}
                </tbody>`;
            })}
        </table></div>`;
}

/** @param {DiffRow} row @param {number} index */
function splitRow(row, index) {
    const equal = row.op === "equal";
    const newText = equal ? row.old_text : row.new_text;
    return html`<tr key=${index}>
        <td class="no">${row.old ?? ""}</td>
        <td class=${`text ${equal ? "" : row.old_text === null ? "void" : "out"}`}>${row.old_text !== null && html`<span class="sign" aria-hidden="true">${equal ? " " : "-"}</span>${!equal && html`<span class="unseen">removed: </span>`}<${Code} text=${row.old_text} spans=${row.old_spans} marks=${row.old_marks} />`}</td>
        <td class="no">${row.new ?? ""}</td>
        <td class=${`text ${equal ? "" : newText === null ? "void" : "in"}`}>${newText !== null && html`<span class="sign" aria-hidden="true">${equal ? " " : "+"}</span>${!equal && html`<span class="unseen">added: </span>`}<${Code} text=${newText} spans=${equal && row.new_spans.length === 0 ? row.old_spans : row.new_spans} marks=${row.new_marks} />`}</td>
    </tr>`;
}

/** @param {ReturnType<typeof inlineRows>[number]} line @param {number} index */
function inlineRow(line, index) {
    return html`<tr key=${index}>
        <td class="no">${line.old ?? ""}</td><td class="no">${line.new ?? ""}</td>
        <td class=${`text ${classes[line.sign]}`}><span class="sign" aria-hidden="true">${line.sign}</span>${line.sign !== " " && html`<span class="unseen">${line.sign === "+" ? "added: " : "removed: "}</span>`}<${Code} text=${line.text} spans=${line.spans} marks=${line.marks} /></td>
    </tr>`;
}
