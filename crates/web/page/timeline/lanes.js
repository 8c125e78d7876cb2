// Branches left by going back, as lanes: newest row first, each row knows its parent.

/**
 * @typedef {{ id: string, parent: string | null }} Linked
 * @typedef {{ lane: number, joins: number[], above: boolean[], below: boolean[], children: number }} Lane
 * @typedef {(string | null)[]} Waiting the id that each lane leads down to
 */

/** Lanes beyond these are drawn as the last one. */
export const lanesShown = 6;

/**
 * Places one row; changes `waiting` into what the row below begins with.
 * @param {Linked} row @param {Waiting} waiting @returns {Lane}
 */
export function place(row, waiting) {
    const above = waiting.map((id) => id !== null);
    const leading = waiting.flatMap((id, lane) => (id === row.id ? [lane] : []));
    let lane = leading[0] ?? waiting.indexOf(null);
    if (lane < 0) lane = waiting.length;
    for (const other of leading.slice(1)) waiting[other] = null;
    waiting[lane] = row.parent;
    while (waiting.length > 0 && waiting[waiting.length - 1] === null) waiting.pop();
    return { lane, joins: leading.slice(1), above, below: waiting.map((id) => id !== null), children: leading.length };
}
