// A workspace with a history, made by the real binary: turns of two agents, tests, rollbacks, a plan.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { tmpdir } from "node:os";
import { deflateSync, crc32 } from "node:zlib";

export const binary = process.env.SAFEPOINT_BINARY ?? new URL("../../../target/debug/safepoint", import.meta.url).pathname;

export class Shop {
    /** @param {{ fixed?: boolean, name?: string }} [options] with `fixed`, ids and times are the same in each run */
    constructor({ fixed = false, name = "shop" } = {}) {
        this.base = fixed ? join(tmpdir(), "safepoint-pictures") : mkdtempSync(join(tmpdir(), "safepoint-page-"));
        rmSync(this.base, { recursive: true, force: true });
        this.folder = join(this.base, name);
        mkdirSync(this.folder, { recursive: true });
        this.environment = { PATH: process.env.PATH, HOME: this.base, SAFEPOINT_HOME: join(this.base, "home"), TZ: "UTC", LANG: "C.UTF-8" };
        this.now = fixed ? Date.parse("2026-11-17T20:02:00Z") : 0;
        this.seed = 1;
        this.children = new Set();
    }

    /** Lets time pass where it is fixed. @param {number} minutes */
    later(minutes) {
        if (this.now) this.now += minutes * 60_000;
    }

    moment() {
        if (!this.now) return this.environment;
        this.seed += 1;
        return { ...this.environment, SAFEPOINT_TEST_NOW: new Date(this.now).toISOString().replace(/\.\d+Z/, "Z"), SAFEPOINT_TEST_SEED: String(this.seed) };
    }

    /** @param {string[]} words */
    run(...words) {
        return execFileSync(binary, ["-C", this.folder, "--yes", ...words], { env: this.moment(), encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
    }

    /** As `run`, also where the command fails. @param {string[]} words */
    attempt(...words) {
        try {
            return this.run(...words);
        } catch (error) {
            return String(error.stdout ?? "");
        }
    }

    /** @param {string[]} words */
    json(...words) {
        return JSON.parse(this.run("--json", ...words)).data;
    }

    /** @param {string} path @param {string | Uint8Array} content */
    write(path, content) {
        const full = join(this.folder, path);
        mkdirSync(dirname(full), { recursive: true });
        writeFileSync(full, content);
    }

    /** @param {string} path */
    remove(path) {
        rmSync(join(this.folder, path), { recursive: true, force: true });
    }

    /** @param {string} agent @param {string} session @param {string} event @param {object} more */
    hook(agent, session, event, more = {}) {
        const input = JSON.stringify({ session_id: session, cwd: this.folder, hook_event_name: event, ...more });
        execFileSync(binary, ["hook", agent], { env: this.moment(), input, cwd: this.folder, stdio: ["pipe", "pipe", "pipe"] });
    }

    /** One turn of an agent: a prompt, a shell command that changes files, its end. @param {string} prompt @param {() => void} work @param {{ agent?: string, session?: string }} [by] */
    turn(prompt, work, { agent = "claude", session = "57858edd-f386-4b85-b6ba-76f742d12643" } = {}) {
        this.hook(agent, session, "UserPromptSubmit", { prompt });
        this.later(2);
        this.hook(agent, session, "PreToolUse", { tool_name: "Bash", tool_use_id: prompt, tool_input: { command: "make" } });
        work();
        this.later(3);
        this.hook(agent, session, "Stop");
        this.later(1);
    }

    /** The checkpoint with this label. @param {string} label @returns {string} */
    idOf(label) {
        return this.json("list", "--all-roles").checkpoints.find((/** @type {any} */ one) => one.label === label).id;
    }

    /** Damages the packs of the store; their beginnings stay whole. */
    damage() {
        const packs = join(this.base, "home/store/packs");
        for (const name of readdirSync(packs)) {
            const path = join(packs, name);
            const bytes = readFileSync(path);
            for (let at = Math.floor(bytes.length * 0.2); at < bytes.length * 0.8; at += 7) bytes[at] = (bytes[at] ?? 0) ^ 0x55;
            writeFileSync(path, bytes);
        }
    }

    /** Starts `safepoint ui` and resolves to its address. @param {string[]} [more] @returns {Promise<{ address: string, stop: () => Promise<void>, pid: number }>} */
    serve(more = []) {
        const child = spawn(binary, ["ui", "--no-open", "-C", this.folder, ...more], { env: this.moment(), stdio: ["ignore", "pipe", "pipe"] });
        this.children.add(child);
        let heard = "";
        return new Promise((resolve, reject) => {
            const hear = (/** @type {Buffer} */ chunk) => {
                heard += chunk;
                const address = /http:\/\/\S+#token=\S+/.exec(heard)?.[0];
                if (address) resolve({ address, pid: child.pid ?? 0, stop: () => this.stop(child) });
            };
            child.stdout.on("data", hear);
            child.stderr.on("data", hear);
            child.on("exit", (code) => {
                this.children.delete(child);
                reject(new Error(`safepoint ui ended with ${code}: ${heard}`));
            });
        });
    }

    /** @param {import("node:child_process").ChildProcess} child @returns {Promise<void>} */
    stop(child) {
        return new Promise((resolve) => {
            if (child.exitCode !== null || child.signalCode !== null) return resolve();
            child.once("exit", () => resolve());
            child.kill("SIGKILL");
        });
    }

    async end() {
        for (const child of this.children) await this.stop(child);
        rmSync(this.base, { recursive: true, force: true });
    }
}

const main = (/** @type {string} */ word) => `use crate::price::total;\n\nfn main() {\n    let orders = read_orders();\n    for order in &orders {\n        println!("{}: {}", order.name, total(order));\n    }\n    println!("${word}");\n}\n\nfn read_orders() -> Vec<Order> {\n    std::fs::read_to_string("orders.txt")\n        .unwrap_or_default()\n        .lines()\n        .map(Order::parse)\n        .collect()\n}\n`;
const price = (/** @type {number} */ percent) => `//! Prices with tax.\n\n/// Tax in percent.\nconst TAX: u32 = ${percent};\n\npub fn total(order: &Order) -> u32 {\n    order.amount * (100 + TAX) / 100\n}\n`;

/** Fills a shop with the history of an evening and a night. @param {Shop} shop */
export function history(shop) {
    const codex = { agent: "codex", session: "9a1d2f10-77c4-4c57-9d0e-3b1f9d4f6e21" };
    shop.write("README.md", "# Shop\n\nSells things.\n");
    shop.write("src/main.rs", main("hello"));
    shop.write("src/price.rs", price(19));
    shop.write("docs/limits.md", "no limits yet\n");
    shop.write("assets/logo.png", png([10, 88, 168]));
    shop.write("data/stock.bin", new Uint8Array(3000).map((_, index) => index % 251));
    shop.run("create", "-m", "before the agent");
    shop.later(6);
    shop.turn("add a table of limits", () => { shop.write("docs/limits.md", "| who | limit |\n|---|---|\n| guest | 10 |\n"); shop.write("src/limits.rs", "pub const GUEST: u32 = 10;\n"); });
    shop.turn("make the tests pass", () => { shop.write("src/limits.rs", "pub const GUEST: u32 = 10;\n\n#[test]\nfn guests_are_limited() {\n    assert!(GUEST > 0);\n}\n"); shop.write("check", "#!/bin/sh\ngrep -q 'TAX: u32 = 19' src/price.rs\n"); });
    shop.run("create", "-m", "tests pass", "--counter", "tests_passing=12", "--counter", "tests_failing=0");
    shop.later(9);
    shop.turn("new logo", () => { shop.write("assets/logo.png", png([166, 90, 0])); shop.write("data/stock.bin", new Uint8Array(3100).map((_, index) => index % 241)); }, codex);
    shop.turn("say goodbye in main", () => { shop.write("src/main.rs", main("goodbye, and thank you for your order")); });
    shop.later(180);
    shop.turn("clean up the code", () => { shop.write("src/main.rs", "fn main() {}\n"); shop.remove("src/limits.rs"); shop.write("src/price.rs", price(7)); });
    shop.run("create", "-m", "after the cleanup", "--counter", "tests_passing=9", "--counter", "tests_failing=3");
    shop.later(4);
    shop.run("rollback", "tests pass");
    shop.later(2);
    shop.turn("clean up the code, but keep the limits", () => { shop.write("src/main.rs", main("hello").replace("std::fs::read_to_string", "fs::read_to_string").replace("use crate", "use std::fs;\nuse crate")); shop.write("notes.md", "attempt B\n"); }, codex);
    shop.later(3);
}

/** A plan whose last step but one fails. @param {Shop} shop */
export function failingPlan(shop) {
    shop.write("plan.toml", `title = "Rate limits for the API"\nid = "limits"\n\n[[step]]\nid = "migrate"\nrun = "echo created table counters; echo counters > data/counters"\nundo = "echo dropped table counters"\n\n[[step]]\nid = "api"\n\n[[step.step]]\nid = "handlers"\nrun = "echo 'pub fn limit() {}' > src/handlers.rs; echo wrote src/handlers.rs"\n\n[[step.step]]\nid = "test"\nrun = "echo running 12 tests; echo 'test limits::burst ... FAILED'; exit 1"\n\n[[step]]\nid = "review"\n`);
    shop.run("plan", "new", "plan.toml");
    shop.run("plan", "decide", "limits", "--question", "Where do counters live?", "--choice", "postgres", "--alternative", "redis", "--why", "it is there already");
    shop.attempt("plan", "run", "limits");
    shop.later(2);
}

/** Two attempts at the same task, each with a check, and an older one that was dropped. @param {Shop} shop */
export function attempts(shop) {
    shop.attempt("try", "--name", "fast", "--later", "--verify", "grep -q TAX src/price.rs", "--", "/bin/sh", "-c", `echo 'pub fn limit() {}' > src/fast.rs; rm docs/limits.md; ${binary} metric speed=0.9`);
    shop.attempt("try", "--name", "careful", "--later", "--verify", "test -e src/careful.rs", "--", "/bin/sh", "-c", `echo 'fn checked() -> u32 { 10 }' > src/careful.rs; echo checked >> README.md; ${binary} metric speed=0.4`);
    shop.attempt("try", "--name", "wild", "--discard", "--", "/bin/sh", "-c", "rm -r src; exit 3");
}

/** A small picture of one colour with a square. @param {number[]} colour */
export function png(colour) {
    const side = 48;
    const rows = Buffer.alloc(side * (side * 3 + 1));
    for (let y = 0; y < side; y += 1) for (let x = 0; x < side; x += 1) {
        const inside = x > 14 && x < 34 && y > 14 && y < 34;
        rows.set(inside ? [255, 255, 255] : colour, y * (side * 3 + 1) + 1 + x * 3);
    }
    const chunk = (/** @type {string} */ name, /** @type {Buffer} */ data) => {
        const body = Buffer.concat([Buffer.from(name), data]);
        const ends = Buffer.alloc(8);
        ends.writeUInt32BE(data.length, 0);
        ends.writeUInt32BE(crc32(body) >>> 0, 4);
        return Buffer.concat([ends.subarray(0, 4), body, ends.subarray(4)]);
    };
    const head = Buffer.alloc(13);
    head.writeUInt32BE(side, 0);
    head.writeUInt32BE(side, 4);
    head.set([8, 2, 0, 0, 0], 8);
    return Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), chunk("IHDR", head), chunk("IDAT", deflateSync(rows)), chunk("IEND", Buffer.alloc(0))]);
}
