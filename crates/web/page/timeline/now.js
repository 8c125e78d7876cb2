// The current state, above all checkpoints. The folder is walked only when asked.
import { ask, post } from "../api.js";
import { ago, count, short } from "../format.js";
import { home, now, refresh } from "../home.js";
import { html, useEffect, useSignal } from "../html.js";
import { asProblem } from "../load.js";
import { go, link } from "../route.js";
import { toast } from "../toast.js";
import { goodWhy, testsOf, titleOf } from "./words.js";

/** @param {{ good: any, fresh: number, since: string | null, jump: () => void }} props */
export function Now({ good, fresh, since, jump }) {
    const state = home.value;
    const looked = useSignal(/** @type {any} */ (null));
    const busy = useSignal("");
    const look = async () => {
        busy.value = "look";
        try {
            looked.value = { ...(await ask("/status/present")), at: new Date().toISOString() };
            await refresh();
        } catch (error) {
            toast(asProblem(error).message, [], true);
        }
        busy.value = "";
    };
    const take = async () => {
        busy.value = "take";
        try {
            const { checkpoint, unchanged } = await post("/checkpoints", {});
            toast(unchanged ? "Nothing changed since the newest checkpoint" : `Checkpoint ${short(checkpoint.id)}`);
            looked.value = null;
            await refresh();
        } catch (error) {
            toast(asProblem(error).message, [], true);
        }
        busy.value = "";
    };
    useEffect(() => {
        looked.value = null;
    }, [state?.workspace?.head]);
    return html`<div class="now">
        <div class="row">
            <span class="strong">Now</span>
            ${looked.value ? html`<${Looked} looked=${looked.value} />` : html`<span class=${`muted ${state.read_only ? "" : "wide"}`}>${state.read_only ? "not shown on a read-only server" : "not compared with the folder yet"}</span>`}
            ${!state.read_only && html`<button onClick=${look} disabled=${busy.value !== "" || state.missing}>${busy.value === "look" ? "Looking…" : looked.value ? "Look again" : "Look for changes"}</button>
            <button onClick=${take} disabled=${busy.value !== "" || state.missing}>${busy.value === "take" ? "Taking…" : "Checkpoint"}</button>`}
        </div>
        ${fresh > 0 && html`<div class="row"><span><span class="strong">${fresh.toLocaleString("en")} new</span> since you last looked${since ? html`, <span class="muted">${ago(since, now.value)}</span>` : ""}</span>
            <button onClick=${jump}>First new</button></div>`}
        ${good && html`<${LastGood} good=${good} />`}
    </div>`;
}

/** @param {{ looked: any }} props */
function Looked({ looked }) {
    const base = looked.base;
    if (looked.changes.length === 0) return html`<span class="good">✓ equal to ${base?.label ?? "the newest checkpoint"}</span>`;
    return html`<a href=${link(["compare", base?.id ?? "", "present"])}>${count(looked.changes.length, "path")} changed</a>
        <span class="muted">since ${base?.label ?? short(base?.id ?? "")}, looked ${ago(looked.at, now.value)}</span>`;
}

/** @param {{ good: any }} props */
function LastGood({ good }) {
    const tests = good.row && testsOf(good.row.checkpoint);
    return html`<div class="row lastgood"><span class=${`chip ${good.why === "position" ? "" : "good"}`}>★ last good</span>
        <a class="cut" href=${link(["checkpoint", good.checkpoint])}>${good.row ? titleOf(good.row) : short(good.checkpoint)}</a>
        <span class="muted small why">${tests?.passing ? `${tests.passing} tests pass; ` : ""}${goodWhy[good.why]}</span>
        ${!home.value.read_only && html`<button data-good-roll onClick=${() => go(["rollback", good.checkpoint])}>Roll back…</button>`}
        ${home.value.test_command && !home.value.read_only && html`<a href="#/good" class="small">Find by running the tests</a>`}</div>`;
}
