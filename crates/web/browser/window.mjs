// A person at a window of the page: counts clicks and keys, and hears every complaint of the browser.
import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { test } from "node:test";

const path = process.env.PAGE_CHROMIUM ?? "/usr/bin/chromium";
const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--font-render-hinting=none"];

/** @param {string[]} [more] flags @returns {Promise<import("playwright-core").Browser>} */
export function browser(more = []) {
    return chromium.launch({ executablePath: path, args: [...flags, ...more] });
}

const media = /** @type {Record<string, string>} */ ({ ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" });

/** With PAGE_FILES=1 the page comes from the sources, so that a change of it needs no build. @param {import("playwright-core").BrowserContext} context @param {string} address */
export async function fromSources(context, address) {
    if (!process.env.PAGE_FILES) return;
    const policy = (await fetch(new URL(address).origin)).headers.get("content-security-policy") ?? "";
    await context.route((url) => url.pathname.startsWith("/") && !url.pathname.startsWith("/api/") && url.protocol === "http:", (route) => {
        const name = new URL(route.request().url()).pathname.slice(1) || "index.html";
        return route.fulfill({ body: readFileSync(join(import.meta.dirname, "../page", name)), contentType: media[extname(name)] ?? "text/plain", headers: { "content-security-policy": policy } });
    });
}

/** @typedef {"mouse" | "keyboard"} Hands */

/** A story, told once with the mouse and once with the keyboard alone. @param {string} name @param {(hands: Hands) => Promise<void>} work */
export function story(name, work) {
    for (const hands of /** @type {const} */ (["mouse", "keyboard"])) test(`${name}, ${hands}`, () => work(hands));
}

/** The key that leads from the focus towards an element; none where the focus is on it. Runs in the page. @param {Element} element @returns {string | null} */
function keyTowards(element) {
    const takesFocus = "a[href], button, input, select, textarea, summary, [tabindex]";
    const members = "[role=row], [role=treeitem], [role=option], [role=tab]";
    let goal = /** @type {HTMLElement | null} */ (element.closest(takesFocus) ?? element.querySelector(takesFocus));
    if (!goal) throw new Error(`nothing takes the focus at ${element.outerHTML.slice(0, 200)}`);
    const at = document.activeElement ?? document.body;
    if (goal === at) return null;
    const isAfter = (/** @type {Element} */ one, /** @type {Element} */ other) => (other.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0;
    if (goal.tabIndex < 0) {
        // One member of a list takes the focus by Tab; arrows lead to the others, and Tab to what is in them.
        const group = goal.closest("[role=grid], [role=tree], [role=listbox], [role=tablist]");
        const member = goal.closest(members);
        const mine = group?.contains(at) ? at.closest(members) : null;
        if (member && mine && member !== mine) {
            const arrows = group?.getAttribute("role") === "tablist" ? ["ArrowLeft", "ArrowRight"] : ["ArrowUp", "ArrowDown"];
            return (isAfter(mine, member) ? arrows[0] : arrows[1]) ?? null;
        }
        if (!mine) goal = group?.querySelector("[tabindex='0']") ?? goal;
    }
    return isAfter(at, goal) ? "Shift+Tab" : "Tab";
}

/** Most keys on the way to an element. */
const mostKeys = 400;

export class Person {
    /** @param {import("playwright-core").Page} page @param {Hands} [hands] */
    constructor(page, hands = "mouse") {
        this.page = page;
        this.hands = hands;
        this.clicks = 0;
        this.keys = 0;
        /** @type {string[]} */
        this.complaints = [];
        /** Further statuses that the story brings about. */
        this.expected = /^$/;
        page.on("pageerror", (error) => this.complaints.push(`error: ${error.stack ?? error.message}`));
        page.on("console", (message) => {
            // A refusal by the server is part of some stories; the browser reports each as an error.
            if (message.type() === "error" && !/status of (404|409|412|423)|ERR_/.test(message.text())) this.complaints.push(message.text());
        });
    }

    /** Opens the page in a window of its own. @param {import("playwright-core").Browser} at @param {string} address @param {import("playwright-core").BrowserContextOptions} [options] @param {Hands} [hands] */
    static async at(at, address, options = {}, hands = "mouse") {
        const context = await at.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", timezoneId: "UTC", locale: "en", ...options });
        context.setDefaultTimeout(15_000);
        await fromSources(context, address);
        const person = new Person(await context.newPage(), hands);
        await person.page.goto(address);
        await person.page.waitForSelector(".app");
        return person;
    }

    /** As `fromSources`, for a page that is opened by hand. @param {string} address */
    ready(address) {
        return fromSources(this.page.context(), address);
    }

    /** Clicks on something. With the keyboard: goes there, and presses what works there as a click. @param {string} what a selector @param {number} [timeout] */
    async click(what, timeout = 15_000) {
        if (this.hands === "mouse") {
            this.clicks += 1;
            await this.page.locator(what).first().click({ timeout });
            return;
        }
        await this.reach(what, timeout);
        const key = await this.page.evaluate(() => {
            const at = document.activeElement;
            // An option is chosen by the arrow that leads to it.
            return at?.matches("input[type=checkbox], input[type=radio]") ? "Space" : at?.matches("[role=option]") ? "" : "Enter";
        });
        if (key) await this.press(key);
    }

    /** Writes a text into a field. @param {string} what a selector @param {string} text */
    async fill(what, text) {
        if (this.hands === "mouse") return this.page.locator(what).first().fill(text);
        await this.reach(what, 15_000);
        await this.press("Control+a");
        await this.page.keyboard.type(text);
    }

    /** Moves the focus to something by keys, as soon as it can take it. @param {string} what a selector @param {number} timeout */
    async reach(what, timeout) {
        const goal = this.page.locator(what).first();
        await goal.waitFor({ state: "visible", timeout });
        const until = Date.now() + timeout;
        while (!(await goal.isEnabled({ timeout })) && Date.now() < until) await this.page.waitForTimeout(20);
        for (let pressed = 0; pressed < mostKeys; pressed += 1) {
            const key = await goal.evaluate(keyTowards, undefined, { timeout });
            if (key === null) return;
            await this.press(key);
            // Lists move the focus with the next frame.
            await this.page.waitForTimeout(key.startsWith("Arrow") ? 50 : 5);
        }
        const at = await this.page.evaluate(() => document.activeElement?.outerHTML.slice(0, 200));
        assert.fail(`${what} cannot be reached by keys; the focus is at ${at}`);
    }

    /** @param {string[]} keys */
    async press(...keys) {
        for (const key of keys) {
            this.keys += 1;
            await this.page.keyboard.press(key);
        }
    }

    /** Presses a key until something is focused. @param {string} key @param {string} selector @param {number} [most] */
    async pressUntil(key, selector, most = 80) {
        for (let pressed = 0; pressed < most; pressed += 1) {
            if (await this.page.evaluate((wanted) => !!document.activeElement?.closest(wanted), selector)) return;
            await this.press(key);
            await this.page.waitForTimeout(10);
        }
        const at = await this.page.evaluate(() => document.activeElement?.outerHTML.slice(0, 200));
        assert.fail(`${selector} cannot be reached by ${key}; the focus is at ${at}`);
    }

    /** @param {string} selector */
    see(selector) {
        return this.page.waitForSelector(selector, { timeout: 10_000 });
    }

    /** @param {string} selector @returns {Promise<string>} */
    async text(selector) {
        return (await this.page.locator(selector).first().innerText()).replace(/\s+/g, " ").trim();
    }

    async close() {
        if (this.hands === "keyboard") assert.equal(this.clicks, 0);
        await this.page.context().close();
        assert.deepEqual(this.complaints.filter((one) => !this.expected.test(one)), []);
    }
}
