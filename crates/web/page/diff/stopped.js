// Why a file is shown plain, or not line by line.

/** @type {Record<string, string>} */
const reasons = {
    size: "This file is larger than 2 MiB: shown without colours.",
    line_length: "This file has lines longer than 16,000 characters: shown without colours.",
    deadline: "Highlighting took too long: shown without colours.",
};

/** @param {string} reason @param {string} kind */
export function stoppedWords(reason, kind) {
    return reason === "size" && kind !== "text" ? "This file is larger than 32 MiB: only sizes and hashes are compared." : reasons[reason] ?? "";
}
