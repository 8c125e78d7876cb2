// A treemap: rectangles in proportion to numbers, as close to squares as they go (Bruls, 2000).

/**
 * @template T
 * @typedef {{ item: T, x: number, y: number, width: number, height: number }} Tile
 */

/**
 * @template T
 * @param {T[]} items largest first
 * @param {(item: T) => number} weigh
 * @param {{ x: number, y: number, width: number, height: number }} box
 * @returns {Tile<T>[]}
 */
export function squarify(items, weigh, box) {
    const total = items.reduce((sum, item) => sum + weigh(item), 0);
    if (total <= 0) return [];
    const scale = (box.width * box.height) / total;
    /** @type {Tile<T>[]} */
    const tiles = [];
    let rest = { ...box };
    let at = 0;
    while (at < items.length) {
        const side = Math.min(rest.width, rest.height);
        let end = at + 1;
        while (end < items.length && worst(items.slice(at, end + 1), weigh, scale, side) <= worst(items.slice(at, end), weigh, scale, side)) end += 1;
        rest = lay(items.slice(at, end), weigh, scale, rest, tiles);
        at = end;
    }
    return tiles;
}

/**
 * The least square tile of a strip.
 * @template T
 * @param {T[]} items @param {(item: T) => number} weigh @param {number} scale @param {number} side
 */
function worst(items, weigh, scale, side) {
    const areas = items.map((item) => Math.max(weigh(item) * scale, 1e-9));
    const sum = areas.reduce((a, b) => a + b, 0);
    return Math.max(...areas.map((area) => Math.max((side * side * area) / (sum * sum), (sum * sum) / (side * side * area))));
}

/**
 * @template T
 * @param {T[]} items @param {(item: T) => number} weigh @param {number} scale
 * @param {{ x: number, y: number, width: number, height: number }} box @param {Tile<T>[]} tiles
 */
function lay(items, weigh, scale, box, tiles) {
    const area = items.reduce((sum, item) => sum + weigh(item) * scale, 0);
    const across = box.width >= box.height;
    const depth = area / Math.max(across ? box.height : box.width, 1e-9);
    let along = 0;
    for (const item of items) {
        const length = (weigh(item) * scale) / Math.max(depth, 1e-9);
        tiles.push(across
            ? { item, x: box.x, y: box.y + along, width: depth, height: length }
            : { item, x: box.x + along, y: box.y, width: length, height: depth });
        along += length;
    }
    return across
        ? { x: box.x + depth, y: box.y, width: box.width - depth, height: box.height }
        : { x: box.x, y: box.y + depth, width: box.width, height: box.height - depth };
}
