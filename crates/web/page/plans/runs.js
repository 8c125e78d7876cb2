// Runs of plans that this page began: each is followed to its end, and can be stopped.
import { followJob, post } from "../api.js";
import { signal } from "../html.js";
import { asProblem } from "../load.js";
import { go } from "../route.js";
import { toast } from "../toast.js";

/** Job of each plan that runs for this page. @type {import("../vendor/signals.js").Signal<Map<string, string>>} */
export const runs = signal(new Map());

/** @param {string} plan @param {string | null} job */
function note(plan, job) {
    const next = new Map(runs.value);
    if (job) next.set(plan, job);
    else next.delete(plan);
    runs.value = next;
}

/** Begins a run; fails if the server refuses it at once. @param {string} plan @param {any} body */
export async function resume(plan, body) {
    const job = await post(`/plans/${encodeURIComponent(plan)}/resume`, body);
    note(plan, job.id);
    follow(plan, job.id);
}

/** @param {string} plan @param {string} job */
async function follow(plan, job) {
    const look = [{ label: "Open the plan", run: () => go(["plan", plan]) }];
    try {
        const { state, result, problem } = await followJob(job, {});
        if (state === "failed") toast(`Plan ${plan} was not run: ${problem.detail}`, look, true);
        else if (state === "cancelled") toast(`Plan ${plan} was stopped`);
        else toast(result.outcome === "failed" ? `Plan ${plan} failed at ${result.step}: ${result.error}` : `Plan ${plan}: ${result.outcome.replaceAll("_", " ")}`, result.outcome === "failed" ? look : [], result.outcome === "failed");
    } catch (error) {
        toast(`Plan ${plan}: ${asProblem(error).message}`, look, true);
    }
    note(plan, null);
}
