// Times, sizes, counts and names as people read them.

const units = ["B", "kB", "MB", "GB", "TB"];

/** @param {number} bytes */
export function size(bytes) {
    let value = bytes;
    let unit = 0;
    while (value >= 1000 && unit < units.length - 1) {
        value /= 1000;
        unit += 1;
    }
    return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** @param {number} count @param {string} noun @param {string} [plural] */
export function count(count, noun, plural) {
    return `${count.toLocaleString("en")} ${count === 1 ? noun : plural ?? `${noun}s`}`;
}

/** @param {number} seconds */
export function span(seconds) {
    if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
    if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
    if (seconds < 86400) return `${Math.round(seconds / 3600)} h`;
    return `${Math.round(seconds / 86400)} d`;
}

/** @param {number} ms */
export function took(ms) {
    return ms < 1000 ? `${Math.round(ms)} ms` : span(ms / 1000);
}

/** @param {string} time @param {Date} now */
export function clock(time, now) {
    const then = new Date(time);
    const minutes = `${two(then.getHours())}:${two(then.getMinutes())}`;
    return then.toDateString() === now.toDateString() ? minutes : `${day(time)} ${minutes}`;
}

/** @param {string} time */
export function day(time) {
    const then = new Date(time);
    return `${then.toLocaleString("en", { month: "short" })} ${then.getDate()}`;
}

/** @param {string} time */
export function whole(time) {
    const then = new Date(time);
    return `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())} ${two(then.getHours())}:${two(then.getMinutes())}:${two(then.getSeconds())}`;
}

/** @param {string} time @param {Date} now */
export function ago(time, now) {
    const seconds = (now.getTime() - new Date(time).getTime()) / 1000;
    return seconds < 10 ? "just now" : `${span(seconds)} ago`;
}

/** A label that Safepoint made, with its ids shortened. @param {string} label */
export function shortLabel(label) {
    return label.replace(/\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b/g, short);
}

/** @param {string} id */
export function short(id) {
    return id.slice(0, 9);
}

/** @param {number} n */
function two(n) {
    return String(n).padStart(2, "0");
}

/** Letters that are not seen, or change what is seen: controls, marks of direction, letters without width. */
const unseen = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gu;
const named = /** @type {Record<string, string>} */ ({ "\n": "\\n", "\r": "\\r", "\t": "\\t" });

/** Text with such letters as escapes. @param {string} text */
export function visible(text) {
    return text.replace(unseen, (letter) => named[letter] ?? `\\u{${(letter.codePointAt(0) ?? 0).toString(16)}}`);
}

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Text of bytes; those that are not UTF-8 as escapes. @param {string} base64 */
function textOfBytes(base64) {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    let text = "";
    for (let at = 0; at < bytes.length;) {
        const first = bytes[at] ?? 0;
        const long = first < 0xc2 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
        try {
            text += visible(strict.decode(bytes.subarray(at, at + long)));
            at += long;
        } catch {
            text += `\\x${first.toString(16).padStart(2, "0")}`;
            at += 1;
        }
    }
    return text;
}

/**
 * A path for people.
 * @param {string | { bytes: string }} path
 */
export function pathText(path) {
    return typeof path === "string" ? visible(path) : textOfBytes(path.bytes);
}

/** The identity of a path, in an address of this page too. @param {any} path @returns {string} */
export function pathKey(path) {
    return typeof path === "string" ? path : `\u0000${path.bytes}`;
}

/** @param {string} key @returns {any} */
export function pathOfKey(key) {
    return key.startsWith("\u0000") ? { bytes: key.slice(1) } : key;
}
