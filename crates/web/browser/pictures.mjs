// Pictures of the page for the documents, with fixed clock, ids and font: docs/page/*.png.
import { mkdirSync } from "node:fs";
import { attempts, failingPlan, history, Shop } from "./shop.mjs";
import { screensOf } from "./screens.mjs";
import { browser, fromSources, Person } from "./window.mjs";

const into = process.argv[2] ?? new URL("../../../docs/page", import.meta.url).pathname;
const wanted = process.argv[3]?.split(",");
const widths = (process.argv[4] ?? "1120x700").split(",").map((size) => size.split("x").map(Number));
const schemes = /** @type {("light" | "dark")[]} */ ((process.argv[5] ?? "light").split(","));
const documented = ["timeline", "checkpoint", "preview", "compare", "plan", "disk"];
const font = "DejaVu Sans";

mkdirSync(into, { recursive: true });
const shop = new Shop({ fixed: true });
history(shop);
failingPlan(shop);
// Not in the documents: attempts change what the disk screen shows.
if (wanted) attempts(shop);
shop.later(4);
const screens = screensOf(shop);
const window = await browser();
for (const [width = 0, height = 0] of widths) {
    for (const colorScheme of schemes) {
        const { address, stop } = await shop.serve();
        const context = { viewport: { width, height }, colorScheme };
        const person = await openAt(address, context);
        for (const [name, screen] of Object.entries(screens)) {
            if (!(wanted ?? documented).includes(name) && wanted?.[0] !== "all") continue;
            await person.page.evaluate((hash) => { location.hash = hash; }, screen.hash);
            await person.page.waitForSelector(screen.ready, { timeout: 15_000 }).catch(() => console.error(`${name}: ${screen.ready} did not come`));
            await person.page.waitForTimeout(250);
            const plain = widths.length === 1 && schemes.length === 1;
            await person.page.screenshot({ path: `${into}/${name}${plain ? "" : `-${width}-${colorScheme}`}.png`, animations: "disabled", caret: "hide" });
        }
        await person.page.context().close();
        if (person.complaints.length) console.error(person.complaints.join("\n"));
        await stop();
    }
}
await window.close();
await shop.end();

/** @param {string} address @param {import("playwright-core").BrowserContextOptions} options */
async function openAt(address, options) {
    const context = await window.newContext({ reducedMotion: "reduce", timezoneId: "UTC", locale: "en", ...options });
    await fromSources(context, address);
    const page = await context.newPage();
    await page.clock.setFixedTime(new Date(shop.now));
    const person = new Person(page);
    await page.goto(address);
    await page.waitForSelector(".app");
    // The font of the pictures; a style of the page itself could not be added under its policy.
    await page.evaluate((family) => {
        document.documentElement.style.setProperty("--sans", family);
        document.documentElement.style.setProperty("--mono", `${family} Mono`);
    }, font);
    return person;
}
