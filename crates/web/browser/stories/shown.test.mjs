// What is confirmed is what is on the screen: choices, refusals, corrections.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { failingPlan, history, Shop } from "../shop.mjs";
import { browser, Person } from "../window.mjs";

for (const hands of /** @type {const} */ (["mouse", "keyboard"])) describe(`with the ${hands}`, () => {
    /** @type {import("playwright-core").Browser} */
    let window;
    /** @type {Shop} */
    let shop;
    /** @type {Person} */
    let person;
    before(async () => {
        window = await browser();
        shop = new Shop();
        history(shop);
        failingPlan(shop);
        const { address } = await shop.serve();
        person = await Person.at(window, address, {}, hands);
    });
    after(async () => {
        await person.close();
        await window.close();
        await shop.end();
    });

    /** @param {string} path */
    const read = (path) => readFileSync(join(shop.folder, path), "utf8");
    /** @param {string} hash */
    const open = async (hash) => {
        await person.page.evaluate(() => { location.hash = "#/plans"; });
        await person.see("main h1:has-text('Plans')");
        await person.page.evaluate((to) => { location.hash = to; }, hash);
    };
    const ready = "[data-confirm]:not([disabled])";
    /** @param {string} text */
    const see = (text) => person.page.waitForFunction((words) => document.querySelector("main")?.textContent?.includes(words), text);

    test("an_unchecked_path_of_a_turn_stays", async () => {
        await open("#/turn/2");
        await person.see(ready);
        assert.match(await person.text("[data-confirm]"), /2 paths/);
        await person.click("input[aria-label='Roll back check']");
        // The older preview is not confirmable for a moment.
        assert.equal(await person.page.locator(ready).count(), 0);
        await person.see(ready);
        assert.match(await person.text("[data-confirm]"), /1 path/);
        assert.match(await person.text(".choices li:has(input[aria-label='Roll back check'])"), /stays as it is/);
        await person.click("[data-confirm]");
        await person.see("[data-result]");
        assert.ok(existsSync(join(shop.folder, "check")));
        assert.doesNotMatch(read("src/limits.rs"), /guests_are_limited/);
        await person.click("[data-undo]");
        await person.see(".timeline");
        await person.page.waitForFunction(() => /Undone/.test(document.querySelector(".toasts")?.textContent ?? ""));
    });

    test("a_choice_that_the_server_refuses_cannot_be_confirmed", async () => {
        await open(`#/rollback/${shop.idOf("before the agent")}`);
        await person.see(ready);
        await person.page.route("**/api/v1/previews", (route) => route.fulfill({ status: 409, contentType: "application/problem+json", body: JSON.stringify({ code: "x", kind: "conflict", detail: "refused for a test", causes: [], hints: [] }) }));
        await person.click("input[aria-label='Roll back check']");
        await person.see(".failure");
        assert.equal(await person.page.locator("[data-confirm]").count(), 0);
        await person.page.unroute("**/api/v1/previews");
        await person.click("[data-again]");
        await person.see(ready);
        assert.match(await person.text(".choices li:has(input[aria-label='Roll back check'])"), /stays as it is/);
    });

    test("a_path_that_comes_after_the_choice_is_in_the_list_before_it_can_be_confirmed", async () => {
        await open(`#/rollback/${shop.idOf("before the agent")}`);
        await person.see(ready);
        await person.click("input[aria-label='Roll back check']");
        await person.see(ready);
        shop.write("late.txt", "written after the choice\n");
        await person.click("[data-confirm]");
        await person.see("[data-code=stale_preview]");
        assert.equal(read("late.txt"), "written after the choice\n");
        await person.click("[data-code=stale_preview] button");
        await person.see(ready);
        await see("late.txt");
        assert.match(await person.text(".choices li:has(input[aria-label='Roll back late.txt'])"), /1 removed/);
        shop.remove("late.txt");
    });

    test("a_correction_that_rolls_back_is_shown_first_and_can_be_undone", async () => {
        await open("#/plan/limits");
        await person.click("button:has-text('Correct…')");
        await person.fill("dialog textarea", "keep the counters in memory");
        const handlers = read("src/handlers.rs");
        await person.click("dialog button.main");
        await person.see(ready);
        assert.match(await person.text("[data-effect=guidance]"), /keep the counters in memory/);
        assert.equal(read("src/handlers.rs"), handlers, "a preview changes nothing");
        shop.write("src/handlers.rs", "// mine, written after the preview\n");
        await person.click("[data-confirm]");
        await person.see("[data-code=stale_preview]");
        assert.match(read("src/handlers.rs"), /mine/);
        await person.click("[data-code=stale_preview] button");
        await person.see(ready);
        assert.match(await person.text("[data-effect=overwritten]"), /handlers\.rs/);
        await person.click("[data-confirm]");
        await person.see("[data-result]");
        assert.doesNotMatch(existsSync(join(shop.folder, "src/handlers.rs")) ? read("src/handlers.rs") : "", /mine/);
        assert.ok(shop.json("plan", "show", "limits").plan.decisions.some((/** @type {any} */ one) => /in memory/.test(one.choice)));
        await person.click("[data-undo]");
        await person.see(".timeline");
        await person.page.waitForFunction(() => /Undone/.test(document.querySelector(".toasts")?.textContent ?? ""));
        assert.match(read("src/handlers.rs"), /mine/);
    });

    /** @param {string} list @param {string} value */
    const choose = async (list, value) => {
        if (hands === "mouse") {
            await person.page.selectOption(list, { value });
            return;
        }
        await person.reach(list, 15_000);
        for (let tries = 0; (await person.page.inputValue(list)) !== value && tries < 20; tries += 1) await person.press("ArrowDown");
    };

    test("one_agent_or_one_session_is_shown_alone", async () => {
        await open("#/timeline");
        await person.see(".trow[data-id]");
        const all = await person.text("[data-total]");
        const agents = () => person.page.evaluate(() => [...new Set([...document.querySelectorAll(".rows .trow[data-id] .agent")].map((cell) => cell.textContent?.trim()))]);
        assert.ok((await agents()).length > 1);
        for (const [kind, which] of /** @type {const} */ ([["agent", "codex"], ["session", "9a1d2f10-77c4-4c57-9d0e-3b1f9d4f6e21"]])) {
            await choose(`[data-only=${kind}]`, which);
            await person.page.waitForFunction((old) => document.querySelector("[data-total]")?.textContent !== old && document.querySelector(".trow[data-id]"), all);
            assert.deepEqual(await agents(), ["codex"]);
            await person.click(".filters button:has-text('Show all')");
            await person.page.waitForFunction((old) => document.querySelector("[data-total]")?.textContent === old, all);
        }
    });
});
