// Every state of the page that has no address of its own: results, dialogs, messages, trouble.
import { renameSync } from "node:fs";
import { Person } from "./window.mjs";

/** @typedef {{ window: import("playwright-core").Browser, options: import("playwright-core").BrowserContextOptions, person: Person, shop: import("./shop.mjs").Shop, address: string, stop: () => Promise<void>, look: (person: Person, name: string) => Promise<void> }} Stage */

const ready = "[data-confirm]:not([disabled])";
/** @param {Person} person @param {string} hash */
const open = (person, hash) => person.page.evaluate((to) => { location.hash = to; }, hash);

/** Goes through all states, and looks at each. The server has ended afterwards. @param {Stage} stage */
export async function everyState(stage) {
    await rollbacks(stage);
    await dialogs(stage);
    await trouble(stage);
    await doors(stage);
}

/** @param {Stage} stage */
async function rollbacks({ person, shop, look }) {
    await open(person, "#/timeline");
    await person.click(".trow[data-index='1'] button[aria-label^='Compare']");
    await person.click(".trow[data-index='3'] button[aria-label^='Compare']");
    await person.see("[data-compare]");
    await look(person, "chosen rows");
    await person.click(".pickbar button:text-is('Clear')");
    await open(person, `#/rollback/${shop.idOf("tests pass")}`);
    await person.see(ready);
    await person.page.locator("main .twist").first().click();
    await person.page.locator(".inner-choices input").first().click();
    await person.see(ready);
    await look(person, "preview with a choice");
    await person.click("[data-confirm]");
    await person.see("[data-result]");
    await look(person, "result");
    await open(person, "#/timeline");
    await person.see(".toast");
    await person.see(".trow button:text-is('Undo')");
    await look(person, "message with an undo");
    await open(person, "#/undo");
    await person.see(ready);
    await look(person, "preview of an undo");
    await person.click("[data-confirm]");
    await person.see("[data-result]");
    await open(person, "#/redo");
    await person.see(ready);
    await look(person, "preview of a redo");
    await open(person, "#/planback/limits");
    await person.see(ready);
    await look(person, "preview of a plan");
    await open(person, `#/correct/limits/${shop.idOf("before api/test")}?guidance=${encodeURIComponent("keep it small")}`);
    await person.see(ready);
    await look(person, "preview of a correction");
}

/** @param {Stage} stage */
async function dialogs({ person, look }) {
    await open(person, "#/plan/limits");
    for (const [button, name] of [["Resume…", "resume"], ["Correct…", "correct"]]) {
        await person.click(`button:has-text('${button}')`);
        await person.see("dialog[open]");
        await look(person, `dialog: ${name}`);
        await person.press("Escape");
    }
    await open(person, "#/disk");
    await person.click("table.usage tbody input:not([disabled])");
    await person.click("button:has-text('Delete 1…'):not([disabled])");
    await person.see("dialog[open]");
    await look(person, "dialog: delete");
    await person.press("Escape");
    await open(person, "#/good");
    await person.page.locator("main input").fill("grep -q 'TAX: u32 = 19' src/price.rs && test ! -e plan.toml");
    await person.click("button:has-text('One after the other')");
    await person.page.waitForFunction(() => /Newest state/.test(document.querySelector("main")?.textContent ?? ""), null, { timeout: 60_000 });
    await look(person, "good state found");
    await person.press("?");
    await person.see("dialog[open]");
    await look(person, "keys");
    await person.press("Escape");
}

/** Answers of the server in trouble; the stories of damage and of locks have the real ones. @param {Stage} stage */
async function trouble({ person, shop, look }) {
    const causes = ["object 5d1e is damaged"];
    for (const [kind, status, detail] of /** @type {[string, number, string][]} */ ([["busy", 423, "another process uses the workspace: safepoint plan run limits (process 4711)"], ["damaged", 500, "`src/price.rs` cannot be read"], ["conflict", 409, "plan limits is running"]])) {
        await person.page.route("**/api/v1/previews", (route) => route.fulfill({ status, contentType: "application/problem+json", body: JSON.stringify({ code: kind, kind, detail, causes, hints: ["Wait for its end: safepoint status"] }) }));
        await open(person, "#/plans");
        await open(person, `#/rollback/${shop.idOf("tests pass")}`);
        await person.see(".failure");
        await look(person, kind);
        await person.page.unroute("**/api/v1/previews");
    }
    await person.page.route("**/api/v1/workspace", async (route) => {
        const answer = await (await route.fetch()).json();
        return route.fulfill({ json: { ...answer, recovered: { undone: 1, settled: 0 } } });
    });
    await open(person, "#/timeline");
    await person.page.reload();
    await person.see("[data-notice=recovered]");
    await look(person, "recovered");
    await person.page.unroute("**/api/v1/workspace");
    renameSync(shop.folder, `${shop.folder}.away`);
    await person.page.reload();
    await person.see("[data-notice=missing]");
    await look(person, "folder missing");
    renameSync(`${shop.folder}.away`, shop.folder);
}

/** @param {Stage} stage */
async function doors({ window, options, person, shop, address, stop, look }) {
    const context = await window.newContext(options);
    const stranger = new Person(await context.newPage());
    await stranger.ready(address);
    await stranger.page.goto(new URL(address).origin);
    await stranger.see("h1:has-text('no key')");
    await look(stranger, "no key");
    await context.close();
    const reader = await Person.at(window, (await shop.serve(["--read-only"])).address, options);
    await reader.see(".trow[data-id]");
    await look(reader, "read-only timeline");
    await open(reader, "#/disk");
    await reader.see("table.usage tbody tr");
    await look(reader, "read-only disk");
    await reader.close();
    await open(person, "#/timeline");
    await person.page.reload();
    await person.see(".trow[data-id]");
    await stop();
    await person.see("[data-notice=gone]");
    await look(person, "server gone");
}
