// The verbs after a confirmation: how they end, and the way back from them.
import { post } from "../api.js";
import { count } from "../format.js";
import { refresh } from "../home.js";
import { asProblem } from "../load.js";
import { go } from "../route.js";
import { toast } from "../toast.js";

/** Files that a result put back, or took over, and removed. @param {any} rollback */
export function sums(rollback) {
    return { restored: rollback.restored_files_count ?? 0, removed: rollback.removed_files_count ?? 0 };
}

/** @param {any} rollback */
export function resultWords(rollback) {
    const { restored, removed } = sums(rollback);
    const done = rollback.verb === "apply" ? "taken over" : "put back";
    return `${count(restored, "file")} ${done}, ${count(removed, "file")} removed${rollback.verified ? ", read back and verified" : ""}`;
}

/** Undoes exactly this rollback, if nothing changed since; else shows what an undo would do. @param {string} id */
export async function undoNow(id) {
    try {
        const { rollback } = await post("/undo", { rollback: id });
        toast(`Undone: ${resultWords(rollback)}`, [{ label: "Redo…", run: () => go(["redo"]) }], false, "undo");
        await refresh();
    } catch (error) {
        const problem = asProblem(error);
        if (problem.status === 409 || problem.status === 412) {
            toast(`Not undone: ${problem.message}`, [{ label: "Look at the undo…", run: () => go(["undo"]) }], true, "undo");
        } else {
            toast(problem.message, [], true);
        }
    }
}
