// Two windows, an agent that writes, a command line, a server that is killed: nothing is confirmed that was not shown, and all or nothing
// of it is done.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { lstatSync, readdirSync, readFileSync, readlinkSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { history, Shop } from "../shop.mjs";
import { browser, Person, story } from "../window.mjs";

/** @type {import("playwright-core").Browser} */
let window;
before(async () => { window = await browser(); });
after(async () => { await window.close(); });

/** @param {(shop: Shop, address: string, second: () => Promise<string>) => Promise<void>} work */
async function inShop(work) {
    const shop = new Shop();
    try {
        history(shop);
        const { address } = await shop.serve();
        // A token works once: the second window belongs to a server of its own.
        await work(shop, address, async () => (await shop.serve()).address);
    } finally {
        await shop.end();
    }
}

/** @param {Person} person @param {string} id */
async function preview(person, id) {
    await person.page.evaluate((target) => { location.hash = "#/timeline"; location.hash = `#/rollback/${target}`; }, id);
    await person.see("[data-confirm]:not([disabled])");
}

/** @param {Shop} shop @param {string} label */
const idOf = (shop, label) => shop.json("list", "--all-roles").checkpoints.find((/** @type {any} */ one) => one.label === label).id;

/** Every path of the folder with its type, mode and content. @param {Shop} shop @returns {Record<string, string>} */
function treeOf(shop) {
    /** @type {Record<string, string>} */
    const found = {};
    const walk = (/** @type {string} */ below) => {
        for (const name of readdirSync(join(shop.folder, below)).sort()) {
            const path = below === "" ? name : `${below}/${name}`;
            if (path === ".safepoint") continue;
            const full = join(shop.folder, path);
            const facts = lstatSync(full);
            const content = facts.isSymbolicLink() ? readlinkSync(full) : facts.isFile() ? createHash("sha256").update(readFileSync(full)).digest("hex") : "";
            found[path] = `${facts.mode.toString(8)} ${content}`;
            if (facts.isDirectory()) walk(path);
        }
    };
    walk("");
    return found;
}

/** Rollbacks that were done; those that were refused are on record, too. @param {Shop} shop @returns {string[]} */
const rollbacks = (shop) => shop.json("history").history.filter((/** @type {any} */ one) => one.result === "done").map((/** @type {any} */ one) => one.id);

story("a_write_after_the_preview_refuses_the_confirmation", (hands) => inShop(async (shop, address) => {
    const person = await Person.at(window, address, {}, hands);
    await preview(person, idOf(shop, "tests pass"));
    shop.write("src/price.rs", "// written after the preview\n");
    await person.click("[data-confirm]");
    await person.see("[data-code=stale_preview]");
    assert.match(readFileSync(join(shop.folder, "src/price.rs"), "utf8"), /after the preview/);
    await person.click("[data-code=stale_preview] button");
    await person.see("[data-confirm]:not([disabled])");
    assert.match(await person.text("[data-effect=overwritten]"), /src\/price\.rs/);
    await person.click("[data-confirm]");
    await person.see("[data-result]");
    assert.match(readFileSync(join(shop.folder, "src/price.rs"), "utf8"), /TAX: u32 = 19/);
    await person.close();
}));

story("the_second_of_two_windows_is_refused", (hands) => inShop(async (shop, address, second) => {
    const first = await Person.at(window, address, {}, hands);
    const other = await Person.at(window, await second(), {}, hands);
    await preview(first, idOf(shop, "tests pass"));
    await preview(other, idOf(shop, "before the agent"));
    await first.click("[data-confirm]");
    await first.see("[data-result]");
    const done = [treeOf(shop), rollbacks(shop)];
    await other.click("[data-confirm]");
    await other.see("[data-code=stale_preview]");
    assert.deepEqual([treeOf(shop), rollbacks(shop)], done, "the state of the first window stays");
    await first.close();
    await other.close();
}));

story("the_second_of_two_tabs_is_refused_and_can_look_again", (hands) => inShop(async (shop, address) => {
    const first = await Person.at(window, address, {}, hands);
    // The new tab gets the key from the open one: both talk to one server.
    const other = new Person(await first.page.context().newPage(), hands);
    await other.page.goto(`${new URL(address).origin}/#/plans`);
    await other.see("main h1:has-text('Plans')");
    await preview(first, idOf(shop, "tests pass"));
    await preview(other, idOf(shop, "before the agent"));
    await first.page.bringToFront();
    await first.click("[data-confirm]");
    await first.see("[data-result]");
    const done = [treeOf(shop), rollbacks(shop)];
    await other.page.bringToFront();
    await other.click("[data-confirm]");
    await other.see("[data-code=stale_preview]");
    assert.deepEqual([treeOf(shop), rollbacks(shop)], done, "nothing happened");
    // What it shows then is what it does.
    await other.click("[data-code=stale_preview] button");
    await other.see("[data-confirm]:not([disabled])");
    await other.click("[data-confirm]");
    await other.see("[data-result]");
    assert.doesNotMatch(JSON.stringify(Object.keys(treeOf(shop))), /limits\.rs/);
    assert.equal(rollbacks(shop).length, done[1].length + 1);
    await first.close();
    assert.deepEqual(other.complaints, []);
}));

story("a_command_line_in_between_refuses_the_confirmation", (hands) => inShop(async (shop, address) => {
    const person = await Person.at(window, address, {}, hands);
    await preview(person, idOf(shop, "before the agent"));
    shop.run("rollback", "tests pass");
    await person.click("[data-confirm]");
    await person.see("[data-code=stale_preview]");
    assert.match(readFileSync(join(shop.folder, "src/limits.rs"), "utf8"), /GUEST/);
    await person.close();
}));

test("what_is_done_is_what_was_shown_whatever_else_writes", () => inShop(async (shop, address, second) => {
    const people = [await Person.at(window, address), await Person.at(window, await second(), {}, "keyboard")];
    /** @type {Map<string, string>} */
    const shown = new Map();
    const counts = { done: 0, refused: 0 };
    const paths = (/** @type {any} */ rollback) => JSON.stringify((rollback.changed_paths ?? []).map((/** @type {any} */ one) => [one.path, one.action]).sort());
    /** @type {string[]} */
    const wrong = [];
    for (const { page } of people) {
        page.on("response", async (response) => {
            const url = new URL(response.url()).pathname;
            const asked = response.request();
            if (asked.method() !== "POST") return;
            if (url.endsWith("/previews") && response.ok()) {
                const body = await response.json();
                shown.set(body.preview, paths(body.rollback));
            }
            if (url.endsWith("/rollbacks")) {
                if (!response.ok()) {
                    counts.refused += 1;
                    if (![409, 412, 423].includes(response.status())) wrong.push(`refused with ${response.status()}`);
                    return;
                }
                counts.done += 1;
                const { rollback } = await response.json();
                const saw = shown.get(asked.postDataJSON().preview);
                if (saw !== paths(rollback)) wrong.push(`shown ${saw}, done ${paths(rollback)}`);
            }
        });
    }
    const targets = ["tests pass", "clean up the code", "before the agent"].map((label) => idOf(shop, label));
    let going = true;
    const agent = (async () => {
        for (let round = 0; going; round += 1) {
            try {
                writeFileSync(join(shop.folder, round % 3 ? "notes.md" : "src/main.rs"), `round ${round}\n`);
            } catch {
                // The folder of the file may be gone for a moment.
            }
            await new Promise((done) => setTimeout(done, 150 + (round * 97) % 700));
        }
    })();
    const line = (async () => {
        for (let round = 0; going; round += 1) {
            shop.attempt(...(round % 2 ? ["rollback", targets[round % 3] ?? ""] : ["create", "-m", `line ${round}`]));
            await new Promise((done) => setTimeout(done, 900));
        }
    })();
    const until = Date.now() + 15_000;
    await Promise.all(people.map(async (person, who) => {
        for (let round = 0; Date.now() < until; round += 1) {
            await person.page.evaluate(() => { location.hash = "#/plans"; });
            await person.see("main h1:has-text('Plans')");
            await person.page.evaluate((target) => { location.hash = `#/rollback/${target}`; }, targets[(round + who) % 3]);
            const ready = await person.page.waitForSelector("[data-confirm]:not([disabled]), .failure, [data-nothing]", { timeout: 10_000 }).catch(() => null);
            const button = "[data-confirm]:not([disabled])";
            if (!ready || await person.page.locator(button).count() === 0) continue;
            await person.click(button, 3000).catch(() => {});
            await person.page.waitForSelector("[data-result], .failure", { timeout: 10_000 }).catch(() => {});
        }
    }));
    going = false;
    await Promise.all([agent, line]);
    console.log(`confirmed ${counts.done}, refused ${counts.refused}`);
    assert.deepEqual(wrong, []);
    assert.ok(counts.done > 0 && counts.refused > 0, "both happened");
    for (const person of people) await person.close();
}));

test("a_server_killed_after_a_confirmation_leaves_exactly_old_or_new", async () => {
    const shop = new Shop();
    try {
        for (let at = 0; at < 120; at += 1) shop.write(`d${at % 7}/f${at}.txt`, `old ${at}\n`);
        shop.write("gone/one.txt", "only here\n");
        shop.write("kind", "a file\n");
        shop.run("create", "-m", "old");
        for (let at = 0; at < 120; at += 1) shop.write(`d${at % 7}/f${at}.txt`, `new ${at}\n`);
        shop.remove("gone");
        shop.remove("kind");
        symlinkSync("d1", join(shop.folder, "kind"));
        shop.write("fresh/two.txt", "only here\n");
        const before = treeOf(shop);
        const to = shop.idOf("old");
        /** @type {Record<string, string> | null} */
        let after = null;

        /** Confirms in a window of its own. With a delay the server is killed so many milliseconds after the page asked it. @param {number | null} delay @returns {Promise<number>} */
        const confirm = async (delay) => {
            const { address, stop } = await shop.serve();
            const person = await Person.at(window, address);
            // The server goes away in the middle: that is the story.
            person.expected = /./;
            await preview(person, to);
            const asked = person.page.waitForRequest((request) => request.method() === "POST" && request.url().endsWith("/rollbacks"));
            await person.click("[data-confirm]");
            await asked;
            const began = performance.now();
            if (delay === null) await person.see("[data-result]");
            else await new Promise((done) => setTimeout(done, delay));
            const took = performance.now() - began;
            await stop();
            if (delay !== null) await person.page.waitForSelector("[data-result], [data-code=server_gone], [data-notice=gone]");
            const reported = await person.page.locator("[data-result]").count() > 0;
            await person.close();
            shop.run("recover");
            // What the page reported as done is done.
            if (reported && after) assert.deepEqual(treeOf(shop), after);
            return took;
        };
        let longest = await confirm(null) * 1.5;
        after = treeOf(shop);
        assert.notDeepEqual(after, before);
        shop.run("undo");
        assert.deepEqual(treeOf(shop), before);

        const seen = { before: 0, after: 0 };
        const least = Number(process.env.PAGE_KILLS ?? 10);
        for (let round = 0; round < least || (round < least + 20 && (seen.before === 0 || seen.after === 0)); round += 1) {
            // Where one outcome alone was seen, the moments move towards the other one.
            if (round >= least) longest = seen.after === 0 ? longest * 2 : longest / 2;
            const delay = Math.random() * longest;
            await confirm(delay);
            const now = treeOf(shop);
            const outcome = JSON.stringify(now) === JSON.stringify(after) ? "after" : "before";
            assert.deepEqual(now, outcome === "after" ? after : before, `killed after ${delay} ms: neither old nor new`);
            seen[outcome] += 1;
            if (outcome === "after") {
                shop.run("undo");
                assert.deepEqual(treeOf(shop), before, "the rollback can be undone");
            }
        }
        console.log(`up to ${Math.round(longest)} ms: ${seen.before} before, ${seen.after} after`);
        assert.ok(seen.before > 0 && seen.after > 0, `both outcomes are seen: ${JSON.stringify(seen)}`);
    } finally {
        await shop.end();
    }
});
