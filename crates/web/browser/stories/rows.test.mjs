// Long lists cost what short ones do: the same nodes, and about the same time.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Shop } from "../shop.mjs";
import { browser, Person } from "../window.mjs";

const many = Number(process.env.PAGE_ROWS ?? 100_000);
/** @type {import("playwright-core").Browser} */
let window;
before(async () => { window = await browser(); });
after(async () => { await window.close(); });

/** @param {number} rows */
async function shopOf(rows) {
    const shop = new Shop();
    shop.write("a.txt", "one\n");
    shop.run("create", "-m", "first");
    // A first run of the server migrates the catalog.
    await (await shop.serve()).stop();
    execFileSync("python3", [new URL("../rows.py", import.meta.url).pathname, join(shop.base, "home", "catalog.db"), String(rows)]);
    return shop;
}

/** Milliseconds from the address and from a scroll to drawn rows, and the nodes of the document. @param {Shop} shop */
async function measure(shop) {
    const { address, stop } = await shop.serve();
    const person = await Person.at(window, address);
    await person.see(".trow[data-id]");
    const open = [];
    for (let round = 0; round < 7; round += 1) {
        // The strip comes after the rows; its request must not fall into the next round.
        await person.see(".heat");
        await person.page.waitForTimeout(200);
        await person.page.evaluate(() => { location.hash = "#/plans"; });
        await person.see("main h1:has-text('Plans')");
        open.push(await person.page.evaluate(async () => {
            const began = performance.now();
            location.hash = "#/timeline";
            while (!document.querySelector(".trow[data-id]")) await new Promise((done) => setTimeout(done, 2));
            return performance.now() - began;
        }));
    }
    await person.see(".heat");
    // Within rows that are here, and to rows that must be asked for first.
    const scrolls = (/** @type {boolean} */ far) => person.page.evaluate(async (anywhere) => {
        const box = /** @type {HTMLElement} */ (document.querySelector(".rows .scroller"));
        const inView = () => [...document.querySelectorAll(".rows .trow:not(.head-row)")].every((row) => row.getAttribute("data-id"));
        const times = [];
        for (let round = 0; round < 9; round += 1) {
            const began = performance.now();
            box.scrollTop = (anywhere ? box.scrollHeight - box.clientHeight : 2000) * ((round * 4 + 3) % 9) / 9;
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            while (!inView()) await new Promise((done) => setTimeout(done, 2));
            times.push(performance.now() - began);
        }
        box.scrollTop = 0;
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        return times;
    }, far);
    const near = await scrolls(false);
    const jump = await scrolls(true);
    await person.see(".trow[data-id]");
    await person.page.waitForTimeout(200);
    const nodes = await person.page.evaluate(() => document.querySelectorAll("*").length);
    const rows = await person.page.evaluate(() => document.querySelector("[role=grid]")?.getAttribute("aria-rowcount"));
    await person.close();
    await stop();
    // The quickest of several rounds: other programs only ever add.
    return { open: Math.round(Math.min(...open)), scroll: Math.round(Math.min(...near)), jump: Math.round(Math.min(...jump)), nodes, rows: Number(rows) };
}

/** Least milliseconds of a page of the timeline, and of the same by the command line. @param {Shop} shop */
async function pageAndList(shop) {
    const { address } = await shop.serve();
    const { origin, hash } = new URL(address);
    const { key } = await (await fetch(`${origin}/api/v1/session`, { method: "POST", body: JSON.stringify({ token: hash.slice("#token=".length) }) })).json();
    const times = { page: Infinity, list: Infinity };
    for (let round = 0; round < 5; round += 1) {
        const began = performance.now();
        const { checkpoints } = await (await fetch(`${origin}/api/v1/checkpoints?limit=200`, { headers: { Authorization: `Bearer ${key}` } })).json();
        const between = performance.now();
        const listed = shop.json("list", "-n", "200");
        times.page = Math.min(times.page, between - began);
        times.list = Math.min(times.list, performance.now() - between);
        assert.deepEqual([checkpoints.length, listed.checkpoints.length], [200, 200]);
    }
    return { page: Math.round(times.page), list: Math.round(times.list) };
}

test("rows_cost_the_same_at_any_length", async () => {
    const few = await shopOf(99);
    const lots = await shopOf(many - 1);
    try {
        // Other programs only ever add time: the least of both counts, and a busy machine gets more attempts.
        let small = await measure(few);
        let large = await measure(lots);
        const least = (/** @type {typeof small} */ one, /** @type {typeof small} */ other) => ({ ...other, open: Math.min(one.open, other.open), scroll: Math.min(one.scroll, other.scroll), jump: Math.min(one.jump, other.jump) });
        // 20 ms are the noise of a timer and of one request.
        const isFlat = (/** @type {"open" | "scroll"} */ what) => large[what] <= small[what] * 1.5 + 20;
        for (let attempt = 0; attempt < 4 && !(isFlat("open") && isFlat("scroll") && large.jump <= 1000); attempt += 1) {
            small = least(small, await measure(few));
            large = least(large, await measure(lots));
        }
        console.log(`100 rows: ${JSON.stringify(small)}\n${many} rows: ${JSON.stringify(large)}`);
        assert.equal(large.rows, many);
        assert.equal(large.nodes, small.nodes, "nodes of the document");
        assert.ok(isFlat("open"), `opening takes ${large.open} ms, with 100 rows ${small.open} ms`);
        assert.ok(isFlat("scroll"), `scrolling takes ${large.scroll} ms, with 100 rows ${small.scroll} ms`);
        // With 100 rows a jump asks for nothing: there is no ratio.
        assert.ok(large.jump <= 1000, `a jump anywhere takes ${large.jump} ms`);
        const { page, list } = await pageAndList(lots);
        console.log(`a page of 200: ${page} ms, list -n 200 --json: ${list} ms`);
        assert.ok(page <= 2 * list, `a page of the timeline takes ${page} ms, list ${list} ms`);
    } finally {
        await few.end();
        await lots.end();
    }
});

/** Files of the large tree. A million take minutes to make; without being asked for, there are fewer. */
const files = Number(process.env.PAGE_TREE ?? 20_000);

/** A tree with this many files in folders of a thousand, and two checkpoints of it. @param {number} count */
function treeOf(count) {
    const shop = new Shop();
    execFileSync("python3", ["-c", `
import os, sys
top, count = sys.argv[1], int(sys.argv[2])
for at in range(count):
    if at % 1000 == 0:
        folder = os.path.join(top, "d%04d" % (at // 1000))
        os.mkdir(folder)
    os.close(os.open(os.path.join(folder, "f%03d" % (at % 1000)), os.O_CREAT | os.O_WRONLY, 0o644))
`, shop.folder, String(count)]);
    shop.run("create", "-m", "all");
    shop.write("d0000/f500", "changed\n");
    shop.run("create", "-m", "one changed");
    return shop;
}

/** Milliseconds and nodes for each view of a tree. @param {Shop} shop */
async function views(shop) {
    const { address } = await shop.serve();
    const person = await Person.at(window, address);
    await person.see(".trow[data-id]");
    const [second, first] = shop.json("list").checkpoints.map((/** @type {any} */ one) => one.id);
    /** @type {Record<string, { ms: number, nodes: number }>} */
    const seen = {};
    for (const [name, hash, selector] of /** @type {[string, string, string][]} */ ([
        ["changed", `#/checkpoint/${second}?tab=changed`, ".difference tr"], ["all", `#/checkpoint/${second}?tab=all`, ".tree .node-row"],
        ["first", `#/checkpoint/${first}?tab=changed`, ".tree .node-row.folder"], ["preview", `#/rollback/${first}`, "[data-confirm]:not([disabled])"],
    ])) {
        const began = performance.now();
        await person.page.evaluate((to) => { location.hash = to; }, hash);
        await person.page.waitForSelector(selector, { timeout: 300_000 });
        const ms = Math.round(performance.now() - began);
        if (name === "all") {
            await person.click(".tree .node-row:has-text('d0000/')");
            await person.see(".tree .node-row:has-text('f000')");
        }
        seen[name] = { ms, nodes: await person.page.evaluate(() => document.querySelectorAll("*").length) };
    }
    await person.close();
    return seen;
}

test("a_tree_of_any_size_costs_a_folder", async () => {
    if (files < 1_000_000) console.log(`a tree of ${files} files; for a million, which takes minutes: PAGE_TREE=1000000`);
    const few = treeOf(1000);
    const lots = treeOf(files);
    try {
        const [small, large] = [await views(few), await views(lots)];
        console.log(`1000 files: ${JSON.stringify(small)}\n${files} files: ${JSON.stringify(large)}`);
        for (const name of ["changed", "all", "preview"]) assert.ok(Math.abs((large[name]?.nodes ?? 0) - (small[name]?.nodes ?? 0)) <= 200, `${name}: ${JSON.stringify([small[name], large[name]])}`);
        assert.ok((large.first?.nodes ?? Infinity) < 3000, `${large.first?.nodes} nodes`);
        // What did not change is not read: a checkpoint with one change opens as quickly.
        assert.ok((large.changed?.ms ?? Infinity) <= (small.changed?.ms ?? 0) * 3 + 500, JSON.stringify([small.changed, large.changed]));
        assert.ok((large.all?.ms ?? Infinity) <= (small.all?.ms ?? 0) * 3 + 500, JSON.stringify([small.all, large.all]));
    } finally {
        await few.end();
        await lots.end();
    }
});
