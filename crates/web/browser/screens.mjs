// Every screen of the page with an address, for access tests and pictures.

/**
 * @param {import("./shop.mjs").Shop} shop
 * @returns {Record<string, { hash: string, ready: string }>}
 */
export function screensOf(shop) {
    const { checkpoints } = shop.json("list", "--all-roles");
    const attempts = shop.json("attempt", "list").attempts;
    const of = (/** @type {string} */ label) => checkpoints.find((/** @type {any} */ one) => one.label === label).id;
    const good = of("tests pass");
    const cleanup = of("clean up the code");
    const second = of("clean up the code, but keep the limits");
    return {
        timeline: { hash: "#/timeline", ready: ".trow[data-id]" },
        checkpoint: { hash: `#/checkpoint/${cleanup}?tab=changed&path=src/price.rs`, ready: ".difference tr" },
        files: { hash: `#/checkpoint/${second}?tab=all&path=README.md`, ready: ".difference tr" },
        left: { hash: `#/checkpoint/${second}?tab=left`, ready: "[role=tabpanel] h2, [role=tabpanel] table" },
        parts: { hash: `#/checkpoint/${second}?tab=parts`, ready: "[role=tabpanel] table" },
        image: { hash: `#/checkpoint/${of("new logo")}?tab=changed&path=assets/logo.png`, ready: ".beside img" },
        binary: { hash: `#/checkpoint/${of("new logo")}?tab=changed&path=data/stock.bin`, ready: "table.binary" },
        compare: { hash: `#/compare/${cleanup}/${second}?path=src/main.rs`, ready: ".difference tr" },
        columns: { hash: `#/compare/${good}/${cleanup}/${second}/present`, ready: ".matrix tbody tr" },
        versions: { hash: "#/file?path=src/price.rs", ready: ".version" },
        search: { hash: "#/search?q=TAX", ready: ".found-row" },
        good: { hash: "#/good", ready: "h1" },
        preview: { hash: `#/rollback/${good}`, ready: "[data-confirm]:not([disabled])" },
        turn: { hash: "#/turn/1", ready: "[data-confirm]:not([disabled])" },
        overtaken: { hash: "#/turn/5", ready: "[data-code=turn_overtaken]" },
        plans: { hash: "#/plans", ready: "table a" },
        plan: { hash: "#/plan/limits", ready: ".step" },
        sessions: { hash: "#/sessions", ready: ".turns tr, .session-card" },
        disk: { hash: "#/disk", ready: ".tile" },
        ...attemptsOf(attempts),
        missing: { hash: "#/checkpoint/01ARZ3NDEKTSV4RRFFQ69G5FAV", ready: ".failure" },
    };
}

/** @param {any[]} attempts @returns {Record<string, { hash: string, ready: string }>} */
function attemptsOf(attempts) {
    const [first, second] = attempts;
    if (!second) return {};
    return {
        attempts: { hash: "#/attempts", ready: "tr[data-attempt]" },
        attempt: { hash: `#/attempt/${first.id}`, ready: ".difference tr" },
        between: { hash: `#/compare/${first.result}/${second.result}`, ready: ".difference tr" },
        keep: { hash: `#/keep/${second.name}`, ready: "[data-confirm]:not([disabled])" },
    };
}
