// Rows of the timeline, 100 at a time, wherever the window is: a long list opens with as many as a short one.
import { ask } from "../api.js";
import { place } from "./lanes.js";

export const pageRows = 100;
const pagesKept = 80;

/**
 * @typedef {{ seq: number, turn: { number: number, side: string } | null, agent: string | null, checkpoint: any }} Row
 * @typedef {{ row: Row, lane: import("./lanes.js").Lane | null, idle: number, newSession: boolean }} Placed
 */

export class Pages {
    /** @param {Record<string, any>} filter @param {() => void} changed */
    constructor(filter, changed) {
        this.filter = filter;
        this.changed = changed;
        this.total = /** @type {number | null} */ (null);
        this.head = /** @type {string | null} */ (null);
        this.problem = /** @type {any} */ (null);
        /** @type {Map<number, Row[]>} */
        this.loaded = new Map();
        /** @type {Map<number, Placed[]>} */
        this.placed = new Map();
        /** @type {Set<number>} */
        this.asked = new Set();
        this.round = 0;
        this.reading = false;
        this.stale = false;
    }

    /** Asks for the pages of these rows that are not here. @param {number} first @param {number} last */
    want(first, last) {
        for (let page = Math.floor(Math.max(0, first) / pageRows); page <= Math.floor(Math.max(0, last - 1) / pageRows); page += 1) {
            if (!this.loaded.has(page) && !this.asked.has(page)) this.get(page);
        }
    }

    /** @param {number} page */
    async get(page) {
        this.asked.add(page);
        const round = this.round;
        try {
            const answer = await ask("/checkpoints", { query: { ...this.filter, skip: page * pageRows || undefined, limit: pageRows } });
            if (round !== this.round) return;
            this.loaded.set(page, answer.checkpoints);
            this.total = answer.total;
            this.head = answer.head;
            this.problem = null;
            this.forget(page);
            this.draw();
        } catch (error) {
            this.problem = error;
        } finally {
            if (round === this.round) this.asked.delete(page);
        }
        this.changed();
    }

    /**
     * Reads everything in view again, and keeps the old rows until then. One reading at a time: in a storm of events,
     * readings that replace each other would never end.
     * @param {number} first @param {number} last
     */
    async again(first, last) {
        if (this.reading) {
            this.stale = true;
            return;
        }
        this.reading = true;
        try {
            do {
                this.stale = false;
                await this.reread(first, last);
            } while (this.stale);
        } finally {
            this.reading = false;
        }
    }

    /** @param {number} first @param {number} last */
    async reread(first, last) {
        const pages = new Set([0, Math.floor(Math.max(0, first) / pageRows), Math.floor(Math.max(0, last - 1) / pageRows)]);
        this.round += 1;
        const round = this.round;
        this.asked.clear();
        const answers = await Promise.all([...pages].map(async (page) => ({
            page, answer: await ask("/checkpoints", { query: { ...this.filter, skip: page * pageRows || undefined, limit: pageRows } }),
        })));
        if (round !== this.round) return;
        this.loaded.clear();
        for (const { page, answer } of answers) {
            this.loaded.set(page, answer.checkpoints);
            this.total = answer.total;
            this.head = answer.head;
        }
        this.draw();
        this.changed();
    }

    /** Drops the pages that are farthest away. @param {number} near */
    forget(near) {
        while (this.loaded.size > pagesKept) {
            const far = [...this.loaded.keys()].reduce((a, b) => (Math.abs(a - near) >= Math.abs(b - near) ? a : b));
            this.loaded.delete(far);
        }
    }

    /** Places the rows of all pages; lanes begin anew where a page is missing. */
    draw() {
        this.placed.clear();
        const lanes = Object.keys(this.filter).length === 0;
        /** @type {import("./lanes.js").Waiting} */
        // The current state goes on from the head: its lane is the first.
        let waiting = lanes && this.head ? [this.head] : [];
        let previous = /** @type {Row | null} */ (null);
        let current = /** @type {string | null} */ (null);
        let expected = 0;
        for (const page of [...this.loaded.keys()].sort((a, b) => a - b)) {
            if (page !== expected) {
                waiting = [];
                previous = null;
                current = null;
            }
            expected = page + 1;
            this.placed.set(page, (this.loaded.get(page) ?? []).map((row) => {
                const { id, parent, created_at: at, session_id: session } = row.checkpoint;
                const lane = lanes ? place({ id, parent }, waiting) : null;
                if (lane && id === this.head) lane.children -= 1;
                const idle = previous ? (Date.parse(previous.checkpoint.created_at) - Date.parse(at)) / 1000 : 0;
                const newSession = session !== null && current !== session;
                current = session ?? current;
                previous = row;
                return { row, lane, idle, newSession };
            }));
        }
    }

    /** The row at an index, once its page is here. @param {number} index @returns {Placed | null} */
    at(index) {
        return this.placed.get(Math.floor(index / pageRows))?.[index % pageRows] ?? null;
    }

    /** The index of a loaded checkpoint, or -1. @param {string} id */
    indexOf(id) {
        for (const [page, rows] of this.placed) {
            const index = rows.findIndex((placed) => placed.row.checkpoint.id === id);
            if (index >= 0) return page * pageRows + index;
        }
        return -1;
    }

    /** The widest stretch of lanes in these rows. @param {number} first @param {number} last */
    width(first, last) {
        let most = 1;
        for (let index = first; index < last; index += 1) {
            const lane = this.at(index)?.lane;
            if (lane) most = Math.max(most, lane.above.length, lane.below.length, lane.lane + 1);
        }
        return most;
    }
}
