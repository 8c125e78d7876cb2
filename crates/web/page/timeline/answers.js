// Which rollback the next undo takes back, and which undo the next redo.

/**
 * @param {{ id: string, verb: string, answers: string | null }[]} done rollbacks that are complete, newest first
 * @returns {{ undo: string | null, redo: string | null }}
 */
export function answerable(done) {
    const undone = new Set();
    const redone = new Set();
    for (const one of done) {
        if (one.verb === "redo" && one.answers) redone.add(one.answers);
        if (one.verb === "undo" && one.answers && !redone.has(one.id)) undone.add(one.answers);
    }
    const open = done.find((one) => one.verb !== "undo" && !undone.has(one.id) && !(one.verb === "redo" && undone.has(one.id)));
    const last = done[0];
    return { undo: open?.id ?? null, redo: last?.verb === "undo" ? last.id : null };
}
