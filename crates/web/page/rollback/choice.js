// Chosen paths of a preview: groups by their first folder, each whole or in part.
import { pathKey, pathText } from "../format.js";

/**
 * @typedef {{ path: any, key: string, text: string, action: string }} Step
 * @typedef {{ name: string, path: any, steps: Step[] }} Group
 */

/** Every path that a preview changes, of one folder or several. @param {any} rollback @returns {Step[]} */
export function stepsOf(rollback) {
    const parts = rollback.together ?? [rollback];
    return parts.flatMap((/** @type {any} */ part) => part.changed_paths ?? []).map((/** @type {any} */ one) => ({ path: one.path, key: pathKey(one.path), text: pathText(one.path), action: one.action }));
}

/** @param {Step[]} steps @returns {Group[]} */
export function groupsOf(steps) {
    /** @type {Map<string, Group>} */
    const groups = new Map();
    for (const step of steps) {
        const folder = step.text.includes("/") ? `${step.text.split("/")[0]}/` : step.text;
        const group = groups.get(folder) ?? { name: folder, path: null, steps: [] };
        // The name of a folder can be given for all of its paths where the text is the name.
        if (folder.endsWith("/") && typeof step.path === "string" && step.path.startsWith(folder)) group.path = folder.slice(0, -1);
        group.steps.push(step);
        groups.set(folder, group);
    }
    return [...groups.values()];
}

/**
 * Paths that stand for all steps with this property: a folder where it holds for all of its steps.
 * @param {Group[]} groups @param {(step: Step) => boolean} holds @returns {any[]}
 */
function covering(groups, holds) {
    return groups.flatMap((group) => {
        const those = group.steps.filter(holds);
        const whole = those.length === group.steps.length && those.length > 1 && group.path !== null;
        return whole ? [group.path] : those.map((step) => step.path);
    });
}

/**
 * The choice as a request has it: nothing for everything, else the shorter list of the paths to roll back and those to leave.
 * @param {Group[]} groups @param {Set<string>} off keys of the steps that are not chosen @param {boolean} onlyLeave
 * @returns {{ paths?: any[], leave?: any[], parts?: string[] } | null}
 */
export function selection(groups, off, onlyLeave = false) {
    if (off.size === 0) return null;
    const leave = covering(groups, (step) => off.has(step.key));
    if (onlyLeave) return { leave };
    const paths = covering(groups, (step) => !off.has(step.key));
    return paths.length <= leave.length ? { paths } : { leave, parts: ["files"] };
}

/** @param {Step[]} steps */
export function tally(steps) {
    const sums = { restored: 0, created: 0, removed: 0, kept: 0 };
    for (const step of steps) if (step.action in sums) sums[/** @type {keyof typeof sums} */ (step.action)] += 1;
    return sums;
}

/** What happens to a path: in a rollback, and where something new is taken over. */
export const actionWords = {
    back: { restored: "put back", created: "created again", removed: "removed", kept: "kept" },
    over: { restored: "changed", created: "created", removed: "removed", kept: "kept" },
};

/** @param {Step[]} steps @param {{ restored: string, created: string }} words */
export function tallyWords(steps, words) {
    const { restored, created, removed, kept } = tally(steps);
    return [restored && `${restored} ${words.restored}`, created && `${created} ${words.created}`, removed && `${removed} removed`, kept && `${kept} kept`].filter(Boolean).join(", ") || "nothing";
}
