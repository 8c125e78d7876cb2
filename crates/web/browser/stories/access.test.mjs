// axe finds nothing, on any screen, in both themes, wide and at 320 px; nothing is wider than the window.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { attempts, failingPlan, history, Shop } from "../shop.mjs";
import { screensOf } from "../screens.mjs";
import { everyState } from "../states.mjs";
import { browser, Person, story } from "../window.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
/** @type {import("playwright-core").Browser} */
let window;
/** @type {Shop} */
let shop;
before(async () => {
    window = await browser();
    shop = new Shop();
    history(shop);
    failingPlan(shop);
    attempts(shop);
});
after(async () => {
    await window.close();
    await shop.end();
});

/** @param {Person} person @param {string} name */
async function check(person, name) {
    // Animations and values that come later are done.
    await person.page.waitForTimeout(150);
    if (process.env.PAGE_STATES) await person.page.screenshot({ path: `${process.env.PAGE_STATES}/${name.replaceAll(/[^a-z0-9-]+/g, "-")}.png`, animations: "disabled" });
    await person.page.evaluate(axe);
    const found = await person.page.evaluate(async (only) => {
        // @ts-expect-error axe is injected.
        const { violations } = await axe.run(document, { runOnly: { type: "tag", values: only } });
        return violations.map((/** @type {any} */ one) => `${one.id}: ${one.nodes.slice(0, 3).map((/** @type {any} */ node) => `${node.html.slice(0, 160)} ${node.failureSummary.split("\n")[1] ?? ""}`).join(" | ")}`);
    }, tags);
    assert.deepEqual(found, [], name);
    const wide = await person.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${name} is ${wide} px wider than the window`);
}

for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
    for (const width of [1280, 320]) {
        test(`axe finds nothing: ${colorScheme}, ${width} px`, async () => {
            const { address, stop } = await shop.serve(["--allow-commands", "--port", "0"]);
            const options = { colorScheme, viewport: { width, height: width === 320 ? 640 : 800 }, reducedMotion: /** @type {const} */ ("reduce") };
            const person = await Person.at(window, address, options);
            for (const [name, screen] of Object.entries(screensOf(shop))) {
                await person.page.evaluate((hash) => { location.hash = hash; }, screen.hash);
                await person.see(screen.ready);
                await check(person, `${name}, ${colorScheme}, ${width} px`);
            }
            person.expected = /status of (401|500)/;
            const look = (/** @type {Person} */ who, /** @type {string} */ name) => check(who, `${name}, ${colorScheme}, ${width} px`);
            await everyState({ window, options, person, shop, address, stop, look });
            await person.close();
        });
    }
}

story("a_folder_without_a_checkpoint_takes_its_first", async (hands) => {
    const empty = new Shop();
    try {
        empty.write("a.txt", "one\n");
        const { address } = await empty.serve();
        const context = await window.newContext();
        const person = new Person(await context.newPage(), hands);
        await person.ready(address);
        await person.page.goto(address);
        await person.see("h1:has-text('No checkpoint yet')");
        await check(person, "no checkpoint");
        await person.click("button.main");
        await person.see(".trow[data-id]");
        await person.close();
    } finally {
        await empty.end();
    }
});
