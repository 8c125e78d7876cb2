// Columns that are wider than a narrow window: they scroll in their own place, by the keyboard too, and the page says so.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { screensOf } from "../screens.mjs";
import { history, Shop } from "../shop.mjs";
import { browser, Person } from "../window.mjs";

/** @type {import("playwright-core").Browser} */
let window;
/** @type {Shop} */
let shop;
before(async () => {
    window = await browser();
    shop = new Shop();
    history(shop);
});
after(async () => {
    await window.close();
    await shop.end();
});

/** Opens the columns in a window of this width. @param {number} width @param {(person: Person) => Promise<void>} work */
async function columns(width, work) {
    const { address, stop } = await shop.serve(["--port", "0"]);
    const person = await Person.at(window, address, { viewport: { width, height: 640 } }, "keyboard");
    const { hash, ready } = /** @type {{ hash: string, ready: string }} */ (screensOf(shop).columns);
    await person.page.evaluate((to) => { location.hash = to; }, hash);
    await person.see(ready);
    // The names of the states come after the paths, and make the columns wider.
    await person.page.waitForFunction(() => [...document.querySelectorAll(".matrix thead th")].some((one) => /clean up/.test(one.textContent ?? "")));
    await work(person);
    assert.ok(await person.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "the page itself does not scroll sideways");
    await person.close();
    await stop();
}

/** @param {Person} person @param {string} selector */
const inView = (person, selector) => person.page.evaluate((where) => {
    const { left, right } = /** @type {Element} */ (document.querySelector(where)).getBoundingClientRect();
    return left >= -1 && right <= innerWidth + 1;
}, selector);

for (const width of [320, 390]) {
    test(`columns_scroll_by_keys_and_the_page_says_so: ${width} px`, () => columns(width, async (person) => {
        const last = ".matrix thead th:last-child";
        await person.see("[data-sideways=after]");
        assert.ok(!await inView(person, last));
        await person.reach(".scroll[aria-label='Paths and states']", 10_000);
        for (let pressed = 0; pressed < 60 && await person.page.locator("[data-sideways=before]").count() === 0; pressed += 1) {
            await person.press("ArrowRight");
            await person.page.waitForTimeout(50);
        }
        await person.see("[data-sideways=before]");
        assert.ok(await inView(person, last), "the last column can be reached");
        assert.ok(await inView(person, ".matrix tbody th"), "the path stays in view");
        // A cell is reached as well, and shows its difference below.
        await person.click(".matrix tbody td:last-child button >> nth=0");
        await person.see(".pane .filediff, .pane .beside, .pane table");
    }));
}

test("nothing_is_said_where_all_columns_fit", () => columns(1280, async (person) => {
    assert.ok(await inView(person, ".matrix thead th:last-child"));
    assert.equal(await person.page.locator("[data-sideways]").count(), 0);
}));
