// The door in a real browser: names that lead here from elsewhere, pages of other ports, hostile names and contents.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { Shop } from "../shop.mjs";
import { browser, Person } from "../window.mjs";

const hostile = "<img src=x onerror=document.title='owned'>.svg";
/** @type {Shop} */
let shop;
before(() => {
    shop = new Shop();
    shop.write(hostile, "<svg xmlns='http://www.w3.org/2000/svg'><script>document.title='owned'</script></svg>\n");
    shop.write("page.html", "<script>document.title='owned'</script>\n");
    shop.run("create", "-m", "<img src=x onerror=document.title='owned'>");
    shop.write("page.html", "<script>document.title='owned again'</script>\n");
    shop.run("create", "-m", "two");
});
after(() => shop.end());

/** A site of its own on another port. @param {(address: string) => Promise<void>} story */
async function otherSite(story) {
    const site = createServer((_request, response) => response.end("<!doctype html><title>other</title>"));
    await new Promise((done) => site.listen(0, "127.0.0.1", () => done(null)));
    try {
        await story(`http://127.0.0.1:${/** @type {any} */ (site.address()).port}`);
    } finally {
        site.close();
        site.closeAllConnections();
    }
}

test("a_name_that_was_rebound_to_this_machine_gets_nothing", async () => {
    const window = await browser(["--host-resolver-rules=MAP evil.example 127.0.0.1"]);
    const page = await (await window.newContext()).newPage();
    let port = "";
    // The site shows its page; then its name leads to the port of our server.
    await otherSite(async (site) => {
        port = new URL(site).port;
        await page.goto(`http://evil.example:${port}/`);
    });
    const { address, stop } = await shop.serve(["--port", port]);
    try {
        const token = new URL(address).hash.slice("#token=".length);
        const got = await page.evaluate(async (stolen) => {
            const trade = await fetch("/api/v1/session", { method: "POST", body: JSON.stringify({ token: stolen }) });
            return [location.hostname, trade.status, (await fetch("/api/v1/workspace")).status, (await fetch("/")).status];
        }, token);
        assert.deepEqual(got, ["evil.example", 403, 403, 403]);
        // The token was not used up: the person can enter.
        const person = await Person.at(window, address);
        await person.close();
    } finally {
        await stop();
        await window.close();
    }
});

test("a_page_of_another_port_reads_and_does_nothing", () => otherSite(async (site) => {
    const window = await browser();
    const { address, stop } = await shop.serve(["--port", "0"]);
    try {
        const { origin, hash } = new URL(address);
        // The person has the page open in the same browser, with its key.
        const context = await window.newContext();
        const mine = new Person(await context.newPage());
        await mine.ready(address);
        await mine.page.goto(address);
        await mine.see(".trow[data-id]");
        const theirs = await context.newPage();
        await theirs.goto(site);
        const got = await theirs.evaluate(async ([to, token]) => {
            const tried = async (/** @type {string} */ path, /** @type {RequestInit} */ how) => {
                try {
                    const answer = await fetch(to + path, how);
                    return `${answer.type} ${answer.status} ${(await answer.text()).length}`;
                } catch {
                    return "refused";
                }
            };
            const simple = { method: "POST", mode: /** @type {const} */ ("no-cors"), body: "{}", credentials: /** @type {const} */ ("include") };
            const frame = document.createElement("iframe");
            frame.src = to ?? "";
            document.body.append(frame);
            await new Promise((done) => { frame.onload = done; setTimeout(done, 2000); });
            let framed = "";
            try {
                framed = frame.contentDocument?.body.innerText ?? "";
            } catch {
                framed = "";
            }
            return {
                read: await tried("/api/v1/workspace", {}), page: await tried("/", {}),
                forged: await tried("/api/v1/checkpoints", { method: "POST", body: "{}", headers: { "Content-Type": "application/json", Authorization: "Bearer x" } }),
                traded: await tried("/api/v1/session", { ...simple, body: JSON.stringify({ token }) }), simple: await tried("/api/v1/checkpoints", simple),
                framed, opened: document.cookie,
            };
        }, [origin, hash.slice("#token=".length)]);
        assert.deepEqual(got, { read: "refused", page: "refused", forged: "refused", traded: "refused", simple: "refused", framed: "", opened: "" });
        assert.equal(shop.json("list").checkpoints.length, 2, "nothing was taken");
        // The key still works: a trade by another site is refused before the token is looked at.
        await mine.page.reload();
        await mine.see(".trow[data-id]");
        assert.deepEqual(await context.cookies(), []);
        await context.close();
    } finally {
        await stop();
        await window.close();
    }
}));

test("a_new_tab_gets_the_key_from_an_open_one_and_a_stranger_does_not", async () => {
    const window = await browser();
    const { address, stop } = await shop.serve(["--port", "0"]);
    try {
        const person = await Person.at(window, address);
        const tab = await person.page.context().newPage();
        await tab.goto(`${new URL(address).origin}/#/plans`);
        await tab.waitForSelector("main h1:has-text('Plans')");
        const stranger = await (await window.newContext()).newPage();
        await stranger.goto(`${new URL(address).origin}/#/plans`);
        await stranger.waitForSelector("h1:has-text('no key')");
        await person.close();
    } finally {
        await stop();
        await window.close();
    }
});

test("hostile_names_and_contents_are_text", async () => {
    const window = await browser();
    const { address, stop } = await shop.serve(["--port", "0"]);
    try {
        const person = await Person.at(window, address);
        const [second, first] = shop.json("list").checkpoints.map((/** @type {any} */ one) => one.id);
        const screens = ["#/timeline", `#/checkpoint/${first}?tab=all&path=${encodeURIComponent(hostile)}`, `#/checkpoint/${second}?tab=changed&path=page.html`, `#/compare/${first}/present`,
            `#/file?path=${encodeURIComponent(hostile)}`, "#/search?q=script", `#/rollback/${first}`, "#/disk", `#/search?q=${encodeURIComponent("<img src=x onerror=document.title='owned'>")}`, `#/plan/${encodeURIComponent("<img src=x onerror=document.title='owned'>")}`];
        for (const hash of screens) {
            await person.page.evaluate((to) => { location.hash = to; }, hash);
            await person.page.waitForTimeout(500);
            assert.doesNotMatch(await person.page.title(), /owned/, hash);
            assert.equal(await person.page.locator("img[src=x], main script, main iframe").count(), 0, hash);
        }
        // A picture that can hold scripts is never a document, even where its address is opened.
        const answer = await person.page.evaluate(async ([id, path]) => {
            const raw = await fetch(`/api/v1/raw?checkpoint=${id}&path=${encodeURIComponent(path ?? "")}`, { headers: { Authorization: `Bearer ${sessionStorage.getItem("safepoint-key")}` } });
            return [raw.headers.get("content-type"), raw.headers.get("content-disposition")];
        }, [first, hostile]);
        assert.deepEqual(answer, ["application/octet-stream", "attachment"]);
        await person.close();
    } finally {
        await stop();
        await window.close();
    }
});
