// Nothing on the screen is false: damage, lost connections, runners that died, odd names, large files.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, connect } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { binary, history, png, Shop } from "../shop.mjs";
import { browser, Person, story } from "../window.mjs";

/** @type {import("playwright-core").Browser} */
let window;
before(async () => { window = await browser(); });
after(async () => { await window.close(); });

/** @param {(shop: Shop) => void} fill @param {(shop: Shop, person: Person, open: (hash: string) => Promise<void>) => Promise<void>} work @param {string[]} [options] @param {import("../window.mjs").Hands} [hands] */
async function inShop(fill, work, options = [], hands = "mouse") {
    const shop = new Shop();
    try {
        fill(shop);
        const { address } = await shop.serve(options);
        const person = await Person.at(window, address, {}, hands);
        await work(shop, person, (hash) => person.page.evaluate((to) => { location.hash = to; }, hash));
        await person.close();
    } finally {
        await shop.end();
    }
}
/** @param {Person} person @param {string} selector @param {RegExp} words */
const reads = (person, selector, words) => person.page.waitForFunction(([where, source]) => new RegExp(source ?? "").test(document.querySelector(where ?? "")?.textContent ?? ""), [selector, words.source]);

test("a_search_over_damage_does_not_say_that_nothing_was_found", () => inShop((shop) => {
    for (let at = 0; at < 30; at += 1) shop.write(`f${at}.txt`, `needle ${at} ${"x".repeat(at * 40)}\n`);
    shop.run("create", "-m", "one");
    shop.damage();
}, async (_shop, person, open) => {
    person.expected = /status of 500/;
    await open("#/search?q=needle");
    await person.page.waitForSelector("[data-unreadable], .failure", { timeout: 10_000 });
    assert.doesNotMatch(await person.text("main"), /Nothing found/);
}));

story("halves_that_find_nothing_do_not_say_that_nothing_passes", (hands) => inShop((shop) => {
    shop.write("a", "1");
    shop.run("create", "-m", "without the check");
    shop.write("check", "#!/bin/sh\nexit 0\n");
    shop.run("create", "-m", "passes");
    shop.write("check", "#!/bin/sh\nexit 1\n");
    shop.run("create", "-m", "fails");
}, async (_shop, person, open) => {
    await open("#/good");
    await person.fill("main input", "sh ./check");
    await person.click("button:has-text('By halves')");
    await person.see("[data-outcome]");
    assert.match(await person.text("[data-outcome]"), /oldest checkpoint fails.*may pass/);
    await person.click("[data-outcome] button");
    await reads(person, "main", /Newest state that passes/);
}, ["--allow-commands"], hands));

test("a_connection_that_comes_back_is_live_again_without_an_event", () => inShop((shop) => { shop.write("a", "1"); shop.run("create", "-m", "one"); }, async (shop) => {
    const { address } = await shop.serve(["--port", "0"]);
    const port = Number(new URL(address).port);
    /** A tunnel as of ssh, which breaks and comes back. */
    const sockets = new Set();
    const tunnel = createServer((client) => {
        const server = connect(port, "127.0.0.1");
        for (const one of [client, server]) {
            sockets.add(one);
            one.on("error", () => {});
            one.on("close", () => { client.destroy(); server.destroy(); });
        }
        client.pipe(server).pipe(client);
    });
    const listen = (/** @type {number} */ at) => new Promise((done) => tunnel.listen(at, "127.0.0.1", () => done(/** @type {any} */ (tunnel.address()).port)));
    const at = await listen(0);
    const person = await Person.at(window, address.replace(`:${port}/`, `:${at}/`));
    await person.see("[data-live-state=live]");
    const closed = new Promise((done) => tunnel.close(done));
    for (const one of sockets) one.destroy();
    await closed;
    await person.see("[data-notice=gone]");
    await listen(at);
    await person.see("[data-live-state=live]");
    await person.page.context().close();
    await new Promise((done) => { tunnel.close(done); for (const one of sockets) one.destroy(); });
}));

story("a_plan_whose_runner_was_killed_can_be_resumed_without_a_reload", (hands) => inShop((shop) => {
    shop.write("plan.toml", 'title = "Slow"\nid = "slow"\n\n[[step]]\nid = "wait"\nrun = "echo begun; sleep 60"\n');
    shop.run("create", "-m", "one");
    shop.run("plan", "new", "plan.toml");
}, async (shop, person, open) => {
    await open("#/plan/slow");
    const child = spawn(binary, ["-C", shop.folder, "plan", "run", "slow"], { env: shop.environment, stdio: "ignore", detached: true });
    await reads(person, "[data-output]", /begun/);
    process.kill(-(child.pid ?? 0), "SIGKILL");
    await reads(person, "h1", /interrupted/);
    await person.see("button:has-text('Resume'):not([disabled])");
    // A run of this page is followed, and can be stopped.
    await person.click("button:has-text('Resume')");
    await person.click("dialog button.main");
    await person.see("button:has-text('Stop')");
    await person.click("button:has-text('Stop')");
    await reads(person, ".toasts", /Plan slow/);
    await person.see("button:has-text('Resume'):not([disabled])");
}, [], hands));

test("what_was_set_and_seen_is_kept_when_the_page_starts_again", () => inShop((shop) => { shop.write("a", "1"); shop.run("create", "-m", "one"); }, async (shop, person) => {
    await person.page.waitForFunction(() => Object.keys(localStorage).some((key) => key.startsWith("safepoint-seen-")));
    // The old page asks the new server with its old key.
    person.expected = /status of 401/;
    for (const child of shop.children) await shop.stop(child);
    shop.write("b", "2");
    shop.run("create", "-m", "two");
    const { address } = await shop.serve();
    await person.page.goto(address);
    await person.page.reload();
    await reads(person, ".now", /1 new since you last looked/);
}));

story("names_that_are_not_text_are_shown_and_put_back", (hands) => {
    const odd = Buffer.concat([Buffer.from("dir/odd"), Buffer.from([0xff]), Buffer.from(".txt")]);
    const at = (/** @type {Shop} */ shop) => Buffer.concat([Buffer.from(`${shop.folder}/`), odd]);
    return inShop((shop) => {
        shop.write("dir/b.txt", "b\n");
        writeFileSync(at(shop), "first\n");
        shop.write("dir/\u202egnp.exe", "x\n");
        shop.run("create", "-m", "one");
        writeFileSync(at(shop), "second\n");
        shop.run("create", "-m", "two");
    }, async (shop, person, open) => {
        await open(`#/checkpoint/${shop.idOf("one")}?tab=all`);
        await person.click(".tree .node-row:has-text('dir/')");
        await person.see(".tree .node-row:has-text('odd\\\\xff.txt')");
        assert.match(await person.text(".tree"), /\\u\{202e\}gnp\.exe/);
        await person.click(".tree .node-row:has-text('odd')");
        await reads(person, ".pane", /first/);
        await person.click(".pane a:has-text('Versions')");
        await person.see(".version");
        await person.click(".version >> nth=1");
        await person.click("[data-restore]");
        await person.see("[data-confirm]:not([disabled])");
        await person.click("[data-confirm]");
        await person.see("[data-result]");
        assert.equal(readFileSync(at(shop), "utf8"), "first\n");
    }, [], hands);
});

story("large_files_cost_a_page_and_a_found_line_is_in_view", (hands) => {
    const lines = (/** @type {number} */ many, /** @type {(at: number) => string} */ line) => `${Array.from({ length: many }, (_, at) => line(at)).join("\n")}\n`;
    return inShop((shop) => {
        shop.write("mid.txt", lines(60_000, (at) => `line ${at}`));
        shop.run("create", "-m", "one");
        shop.write("mid.txt", lines(60_000, (at) => (at === 30_000 ? "NEEDLE" : `line ${at}`)));
        shop.write("new.txt", lines(100_000, (at) => `row ${at} of the file`));
        shop.run("create", "-m", "two");
    }, async (shop, person, open) => {
        const nodes = () => person.page.evaluate(() => document.querySelectorAll("*").length);
        const id = shop.idOf("two");
        await open(`#/checkpoint/${id}?tab=changed&path=new.txt`);
        await reads(person, ".filediff", /row 0 of the file/);
        assert.ok(await nodes() < 40_000, `${await nodes()} nodes`);
        await person.click("button:has-text('More changes')");
        await reads(person, ".filediff", /row 4000 of the file/);
        await open(`#/checkpoint/${id}?tab=changed&path=mid.txt`);
        await reads(person, ".difference", /NEEDLE/);
        await person.click(".gap button");
        await reads(person, ".difference", /line 29600/);
        assert.ok(await nodes() < 40_000, `${await nodes()} nodes`);
        await open("#/search?q=NEEDLE");
        await person.click(".found-row a");
        await person.see("tr.found");
        const place = await person.page.evaluate(() => { const { top, bottom } = /** @type {Element} */ (document.querySelector("tr.found")).getBoundingClientRect(); return top > 0 && bottom < innerHeight; });
        assert.ok(place, "the line is in view");
    }, [], hands);
});

test("a_picture_is_compared_with_the_current_state_and_no_mode_is_invented", () => inShop((shop) => {
    shop.write("logo.png", png([10, 88, 168]));
    shop.run("create", "-m", "one");
    shop.write("logo.png", png([166, 90, 0]));
}, async (shop, person, open) => {
    await open(`#/compare/${shop.idOf("one")}/present?path=logo.png`);
    await person.page.waitForFunction(() => document.querySelectorAll(".beside img").length === 2);
    assert.doesNotMatch(await person.text(".pane"), /mode/);
}));

test("a_read_only_page_offers_nothing_that_waits_for_ever", () => inShop((shop) => { shop.write("a", "1"); shop.run("create", "-m", "one"); }, async (_shop, person, open) => {
    await open("#/disk");
    await person.see("table.usage tbody tr");
    assert.equal(await person.page.locator("table.usage input:not([disabled])").count(), 0);
}, ["--read-only"]));

story("rollbacks_are_named_and_each_can_be_undone_from_the_timeline", (hands) => inShop(history, async (shop, person) => {
    shop.run("rollback", "before the agent");
    await reads(person, ".rows", /before the rollback to before the agent/);
    await reads(person, ".rows", /before the rollback to tests pass/);
    await person.click(".trow button:text-is('Undo')");
    await reads(person, ".toasts", /Undone/);
    assert.ok(existsSync(join(shop.folder, "notes.md")));
    // The one before it is shown first.
    await person.click(".trow button:text-is('Undo…')");
    await person.see("[data-confirm]:not([disabled]), .failure");
    assert.match(person.page.url(), /#\/undo$/);
    await person.page.evaluate(() => { location.hash = "#/timeline"; });
    await person.see(".trow button:text-is('Redo…')");
}, [], hands));
