// Laws of the page's own logic, without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { parsed } from "../../page/api.js";
import { changedNodes } from "../../page/checkpoint/nodes.js";
import { inlineRows } from "../../page/diff/lines.js";
import { segments } from "../../page/diff/segments.js";
import { squarify } from "../../page/disk/squarify.js";
import { pathKey, pathOfKey, pathText } from "../../page/format.js";
import { groupsOf, selection, stepsOf } from "../../page/rollback/choice.js";
import { answerable } from "../../page/timeline/answers.js";
import { place } from "../../page/timeline/lanes.js";
import { scrollFor, windowOf } from "../../page/windowed.js";

test("a_branch_left_by_a_rollback_has_a_lane_of_its_own_and_joins_its_parent", () => {
    /** @type {(string | null)[]} */
    const waiting = [];
    const rows = [["d", "b"], ["c2", "c1"], ["c1", "b"], ["b", "a"], ["a", null]];
    const lanes = rows.map(([id, parent]) => place({ id: id ?? "", parent: parent ?? null }, waiting));
    assert.deepEqual(lanes.map((lane) => lane.lane), [0, 1, 1, 0, 0]);
    assert.deepEqual(lanes[3]?.joins, [1]);
    assert.equal(lanes[3]?.children, 2);
    assert.deepEqual(waiting, []);
});

test("a_freed_lane_is_used_again", () => {
    /** @type {(string | null)[]} */
    const waiting = [];
    for (const [id, parent] of [["z", "m"], ["y", "m"], ["m", "k"]]) place({ id: id ?? "", parent: parent ?? null }, waiting);
    assert.equal(place({ id: "x", parent: "k" }, waiting).lane, 1);
});

test("the_window_holds_as_many_rows_at_any_length_and_reaches_the_last", () => {
    const shown = (/** @type {number} */ rows, /** @type {number} */ top) => windowOf({ rows, height: 28, top, view: 600 });
    const few = shown(100, 0);
    for (const rows of [1_000, 100_000, 3_000_000]) {
        const start = shown(rows, 0);
        assert.equal(start.last - start.first, few.last - few.first);
        const end = shown(rows, start.tall - 600);
        assert.equal(end.last, rows);
        assert.ok(start.tall < 30_000_000, "browsers lay out no more");
        // The last row ends where the view ends.
        assert.ok(Math.abs(end.shift + (end.last - end.first) * 28 - start.tall) < 1);
    }
});

test("a_row_scrolled_to_is_in_the_window", () => {
    for (const rows of [1_000, 2_000_000]) for (const row of [0, 17, rows >> 1, rows - 1]) {
        const top = scrollFor(row, { rows, height: 28, top: 400, view: 600 });
        const { first, last } = windowOf({ rows, height: 28, top, view: 600 });
        assert.ok(first <= row && row < last, `${row} of ${rows}`);
    }
});

test("the_pieces_of_a_line_are_the_line", () => {
    const text = "let 😀 = \"x\"; // e";
    const pieces = segments(text, [[0, 3, "keyword"], [9, 12, "string"], [14, 18, "comment"]], [[4, 11]]);
    assert.equal(pieces.map((piece) => piece.text).join(""), text);
    assert.deepEqual(pieces.filter((piece) => piece.marked).map((piece) => piece.text).join(""), text.slice(4, 11));
    assert.equal(pieces.find((piece) => piece.cls === "s-string")?.text, text.slice(9, 11));
});

test("ranges_beyond_the_line_lose_nothing", () => {
    assert.equal(segments("ab", [[1, 99, "x"]], [[50, 60]]).map((piece) => piece.text).join(""), "ab");
});

test("one_column_shows_removed_lines_before_added_ones_and_all_of_them", () => {
    const row = (/** @type {any} */ op, /** @type {string | null} */ old, /** @type {string | null} */ now) => ({ op, old: 1, new: 1, old_text: old, new_text: now, old_spans: [], new_spans: [], old_marks: [], new_marks: [] });
    const lines = inlineRows([row("replace", "a", "b"), row("replace", "c", "d"), row("equal", "e", null), row("insert", null, "f")]);
    assert.deepEqual(lines.map((line) => line.sign + line.text), ["-a", "-c", "+b", "+d", " e", "+f"]);
});

test("tiles_fill_their_box_in_proportion", () => {
    const sizes = [600, 300, 200, 100, 50, 50, 1];
    const tiles = squarify(sizes, (size) => size, { x: 0, y: 0, width: 400, height: 200 });
    const total = sizes.reduce((a, b) => a + b, 0);
    for (const { item, x, y, width, height } of tiles) {
        assert.ok(Math.abs(width * height - (item / total) * 80_000) < 1);
        assert.ok(x >= -0.01 && y >= -0.01 && x + width <= 400.01 && y + height <= 200.01);
    }
    assert.deepEqual(squarify([0, 0], (size) => size, { x: 0, y: 0, width: 10, height: 10 }), []);
});

test("a_choice_is_the_shorter_list_of_what_goes_and_what_stays", () => {
    const steps = stepsOf({ changed_paths: ["src/a", "src/b", "notes", "out/x", "out/y", "out/z"].map((path) => ({ path, action: "restored" })) });
    const groups = groupsOf(steps);
    assert.equal(selection(groups, new Set()), null);
    assert.deepEqual(selection(groups, new Set(["notes"])), { leave: ["notes"], parts: ["files"] });
    assert.deepEqual(selection(groups, new Set(["src/b", "out/x", "out/y"])), { paths: ["src/a", "notes", "out/z"] });
    assert.deepEqual(selection(groups, new Set(["src/a", "src/b", "notes"])), { paths: ["out"] });
    assert.deepEqual(selection(groups, new Set(["src/b"]), true), { leave: ["src/b"] }, "a turn has its own paths");
    // One of very many is one path in the request.
    const many = groupsOf(stepsOf({ changed_paths: Array.from({ length: 20_000 }, (_, at) => ({ path: `flat/${at}`, action: "restored" })) }));
    assert.deepEqual(selection(many, new Set(["flat/7"])), { leave: ["flat/7"], parts: ["files"] });
});

test("a_name_that_is_not_text_has_a_folder_and_an_identity", () => {
    const odd = { bytes: Buffer.from([...Buffer.from("dir/odd"), 0xff, ...Buffer.from(".txt")]).toString("base64") };
    assert.equal(pathText(odd), "dir/odd\\xff.txt");
    assert.deepEqual(pathOfKey(pathKey(odd)), odd);
    assert.deepEqual(changedNodes([{ path: odd, change: "added", old: null, new: null }], new Set(), pathText).map((node) => [node.key, node.name]), [["dir/", "dir"], [pathKey(odd), "odd\\xff.txt"]]);
    const groups = groupsOf(stepsOf({ changed_paths: [{ path: odd, action: "restored" }, { path: "dir/b", action: "restored" }] }));
    assert.deepEqual(selection(groups, new Set(["dir/b"])), { paths: [odd] });
});

test("letters_that_hide_or_reorder_a_name_are_seen", () => {
    assert.equal(pathText("src/\u202egnp.exe"), "src/\\u{202e}gnp.exe");
    assert.equal(pathText("a\nb\u200b"), "a\\nb\\u{200b}");
    assert.equal(pathText("grün/日本 👩‍💻.txt"), "grün/日本 👩‍💻.txt");
});

test("an_undo_goes_on_after_an_undo_and_a_redo_answers_the_last_one", () => {
    const record = (/** @type {string} */ id, /** @type {string} */ verb, /** @type {string | null} */ answers = null) => ({ id, verb, answers });
    const [first, second] = [record("1", "rollback"), record("2", "rollback")];
    assert.deepEqual(answerable([second, first]), { undo: "2", redo: null });
    assert.deepEqual(answerable([record("3", "undo", "2"), second, first]), { undo: "1", redo: "3" });
    assert.deepEqual(answerable([record("4", "undo", "1"), record("3", "undo", "2"), second, first]), { undo: null, redo: "4" });
    assert.deepEqual(answerable([record("4", "redo", "3"), record("3", "undo", "2"), second, first]), { undo: "4", redo: null });
    assert.deepEqual(answerable([]), { undo: null, redo: null });
});

test("paths_of_several_folders_are_all_shown", () => {
    const together = [{ changed_paths: [{ path: "a", action: "created" }] }, { changed_paths: [{ path: "b", action: "removed" }] }];
    assert.deepEqual(stepsOf({ together }).map((step) => step.text), ["a", "b"]);
});

test("folders_of_one_folder_are_one_node_and_closed_ones_hide_their_paths", () => {
    const changes = ["a/b/c/x", "a/b/c/y", "z"].map((path) => ({ path, change: "modified", old: null, new: null }));
    const text = (/** @type {any} */ path) => path;
    assert.deepEqual(changedNodes(changes, new Set(), text).map((node) => node.key), ["a/b/c/", "a/b/c/x", "a/b/c/y", "z"]);
    assert.deepEqual(changedNodes(changes, new Set(["a/b/c/"]), text).map((node) => node.key), ["a/b/c/", "z"]);
});

test("an_event_of_a_stream_is_read_and_a_comment_is_none", () => {
    assert.deepEqual(parsed('id: 8\nevent: item\ndata: {"a":1}'), { id: "8", event: "item", data: { a: 1 } });
    assert.deepEqual(parsed("data: a\ndata: b"), { id: "", event: "message", data: "a\nb" });
    assert.equal(parsed(": hello"), null);
});
