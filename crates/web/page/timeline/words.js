// Words of a row: title, tests, and lanes in words.
import { short, shortLabel, span } from "../format.js";

/** @param {import("./pages.js").Row} row */
export function titleOf({ checkpoint, turn }) {
    // Labels that Safepoint makes hold whole ids.
    if (checkpoint.label) return checkpoint.role ? shortLabel(checkpoint.label) : checkpoint.label;
    if (turn) return turn.side === "before" ? `before turn ${turn.number}` : `turn ${turn.number}`;
    if (checkpoint.plan_id) return `${checkpoint.reason.replaceAll("_", " ")} of plan ${checkpoint.plan_id}`;
    return `${checkpoint.kind} ${short(checkpoint.id)}`;
}

/** Reason why a checkpoint is the last good one, as the server found it. @type {Record<string, string>} */
export const goodWhy = {
    tests_passing: "newest with tests passing and none failing",
    clean: "newest clean checkpoint of a plan",
    pinned: "newest pinned checkpoint",
    position: "position of the workspace; no checkpoint has passing tests, a clean plan or a pin",
};

/** @param {any} checkpoint */
export function testsOf({ progress }) {
    const passing = progress?.tests_passing;
    const failing = progress?.tests_failing;
    return passing || failing ? { passing: passing ?? 0, failing: failing ?? 0 } : null;
}

/**
 * The place of a row among the branches.
 * @param {import("./lanes.js").Lane | null} lane @param {string | null} parent
 */
export function laneWords(lane, parent) {
    if (!lane) return "";
    const words = [];
    if (lane.above.length > 1 || lane.below.length > 1) words.push(`branch ${lane.lane + 1} of ${Math.max(lane.above.length, lane.below.length, lane.lane + 1)}`);
    if (lane.children > 1) words.push(`${lane.children} branches begin here`);
    if (lane.children === 0) words.push("end of a branch");
    if (!parent) words.push("no parent");
    return words.join(", ");
}

/** A session as a name: ids of agents are shortened. @param {string | null} session */
export function sessionName(session) {
    return session && /^[0-9a-f]{8}-[0-9a-f]{4}-/.test(session) ? session.slice(0, 8) : session ?? "";
}

/** @param {number} seconds */
export function idleWords(seconds) {
    return seconds >= 3600 ? `${span(seconds)} idle` : "";
}
