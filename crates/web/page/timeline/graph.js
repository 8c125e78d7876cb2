// The lanes of one row as a picture. It is hidden from readers: the row says the same in words.
import { html } from "../html.js";
import { lanesShown } from "./lanes.js";

export const laneWidth = 14;

/** @param {number} lane */
const shown = (lane) => Math.min(lane, lanesShown - 1);
/** @param {number} lane */
const x = (lane) => shown(lane) * laneWidth + laneWidth / 2 + 2;
/** @param {number} lane */
const colour = (lane) => `lane-${shown(lane)}`;

/** @param {{ lane: import("./lanes.js").Lane | null, height: number, width: number, kind: string, here: boolean }} props */
export function Graph({ lane, height, width, kind, here }) {
    const middle = height / 2;
    const at = lane?.lane ?? 0;
    const lines = lane ? [
        ...lane.above.flatMap((on, index) => (on && index !== at && !lane.joins.includes(index)
            ? [html`<path class=${colour(index)} d=${`M${x(index)} 0V${height}`} />`] : [])),
        ...lane.below.flatMap((on, index) => (on && index !== at && !lane.above[index]
            ? [html`<path class=${colour(index)} d=${`M${x(index)} ${middle}V${height}`} />`] : [])),
        ...lane.joins.map((index) => html`<path class=${colour(index)} d=${`M${x(index)} 0C${x(index)} ${middle} ${x(index)} ${middle} ${x(at)} ${middle}`} />`),
        lane.above[at] && html`<path class=${colour(at)} d=${`M${x(at)} 0V${middle}`} />`,
        lane.below[at] && html`<path class=${colour(at)} d=${`M${x(at)} ${middle}V${height}`} />`,
    ] : [];
    return html`<svg class="graph" width=${Math.min(width, lanesShown) * laneWidth + 6} height=${height} aria-hidden="true">
        ${lines}
        ${kind === "safety"
            ? html`<rect class=${`node ${colour(at)}`} x=${x(at) - 3.5} y=${middle - 3.5} width="7" height="7" />`
            : html`<circle class=${`node ${colour(at)} ${here ? "here" : ""}`} cx=${x(at)} cy=${middle} r=${here ? 5 : 4} />`}
    </svg>`;
}
