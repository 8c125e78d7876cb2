// Filters of the timeline: one agent, one session, no safety checkpoints. The choice outlives the screen.
import { ask } from "../api.js";
import { html, signal, useEffect, useState } from "../html.js";
import { requestOf } from "./names.js";

/** Turns whose agents and sessions are offered. */
const turnsAsked = 1000;

/** Empty words are everything. */
export const only = signal({ agent: "", session: "", asked: false });

/** The filter as a query; empty if nothing is left out. @returns {Record<string, string>} */
export function filtered() {
    const { agent, session, asked } = only.value;
    return { ...(agent ? { agent } : {}), ...(session ? { session } : {}), ...(asked ? { role: "asked" } : {}) };
}

/** Agents by name, and sessions, the newest first. @returns {Promise<{ agents: string[], sessions: string[] }>} */
async function read() {
    const [{ sessions }, { turns }] = await Promise.all([ask("/sessions"), ask("/turns", { query: { limit: turnsAsked } })]);
    const agents = new Set(turns.map((/** @type {any} */ turn) => turn.agent));
    const ids = new Set([...turns, ...sessions].map((/** @type {any} */ one) => one.session_id));
    return { agents: /** @type {string[]} */ ([...agents]).sort(), sessions: /** @type {string[]} */ ([...ids]) };
}

/** What can be chosen, read again whenever a choice is about to be made. */
function useOffers() {
    const [offers, setOffers] = useState(/** @type {{ agents: string[], sessions: string[] }} */ ({ agents: [], sessions: [] }));
    // Without an answer everything stays shown.
    const again = () => { read().then(setOffers, () => {}); };
    useEffect(again, []);
    return { offers, again };
}

/** @param {{ changed: () => void }} props */
export function Filters({ changed }) {
    const { offers, again } = useOffers();
    /** @param {Partial<{ agent: string, session: string, asked: boolean }>} change */
    const choose = (change) => { only.value = { ...only.value, ...change }; changed(); };
    return html`
        <${Choice} name="Agent" key="agent" chosen=${only.value.agent} offers=${offers.agents} words=${(/** @type {string} */ agent) => agent} again=${again} choose=${(/** @type {string} */ agent) => choose({ agent })} />
        <${Choice} name="Session" key="session" chosen=${only.value.session} offers=${offers.sessions} words=${requestOf} again=${again} choose=${(/** @type {string} */ session) => choose({ session })} />
        <label class="check small"><input type="checkbox" checked=${only.value.asked} onChange=${(/** @type {any} */ event) => choose({ asked: event.currentTarget.checked })} /> without safety checkpoints</label>`;
}

/** @param {{ name: string, chosen: string, offers: string[], words: (one: string) => string, again: () => void, choose: (one: string) => void }} props */
function Choice({ name, chosen, offers, words, again, choose }) {
    // What is chosen stays in the list, even if it was forgotten since.
    const all = chosen && !offers.includes(chosen) ? [chosen, ...offers] : offers;
    if (all.length === 0) return null;
    return html`<label class="check small">${name} <select data-only=${name.toLowerCase()} value=${chosen} onFocus=${again} onChange=${(/** @type {any} */ event) => choose(event.currentTarget.value)}>
        <option value="" selected=${chosen === ""}>all</option>
        ${all.map((one) => html`<option key=${one} value=${one} selected=${one === chosen}>${words(one)}</option>`)}
    </select></label>`;
}
