// Copies the libraries of the page from their packages into page/vendor; with --check, compares.
// Bare imports become relative paths, because an import map would be an inline script.
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const packages = join(process.env.PAGE_MODULES ?? join(here, "node_modules"));
const vendor = join(here, "../page/vendor");

const files = [
    ["preact/dist/preact.mjs", "preact.js", "preact"],
    ["preact/hooks/dist/hooks.mjs", "hooks.js", "preact"],
    ["@preact/signals-core/dist/signals-core.mjs", "signals-core.js", "@preact/signals-core"],
    ["@preact/signals/dist/signals.mjs", "signals.js", "@preact/signals"],
    ["htm/dist/htm.mjs", "htm.js", "htm"],
];
const imports = new Map([
    ["preact", "./preact.js"],
    ["preact/hooks", "./hooks.js"],
    ["@preact/signals-core", "./signals-core.js"],
]);

let differs = false;
/** @param {string} name @param {string} text */
function put(name, text) {
    const path = join(vendor, name);
    if (!process.argv.includes("--check")) {
        writeFileSync(path, text);
    } else if (readFileSync(path, "utf8") !== text) {
        console.error(`${name} differs from its package; run: node vendor.mjs`);
        differs = true;
    }
}

for (const [from, to, name] of files) {
    const { version, license } = JSON.parse(readFileSync(join(packages, name, "package.json"), "utf8"));
    const code = readFileSync(join(packages, from), "utf8")
        .replace(/\n?\/\/# sourceMappingURL=.*\s*$/, "")
        .replace(/from\s*"([^"./][^"]*)"/g, (whole, bare) => {
            const path = imports.get(bare);
            if (!path) throw new Error(`${from} imports ${bare}, which is not vendored`);
            return `from"${path}"`;
        });
    put(to, `/* ${name} ${version}, ${license}: see LICENSES.txt */\n${code.trimEnd()}\n`);
}
const licences = ["preact", "@preact/signals-core", "@preact/signals", "htm"].map((name) => {
    return `${name}\n${"=".repeat(name.length)}\n\n${readFileSync(join(packages, name, "LICENSE"), "utf8").trim()}\n`;
});
put("LICENSES.txt", licences.join("\n\n"));
process.exit(differs ? 1 : 0);
