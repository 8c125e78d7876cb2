// The one door to the vendored libraries: markup, state and effects.
import { createElement, Fragment, render } from "./vendor/preact.js";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
import { computed, effect, signal, useComputed, useSignal } from "./vendor/signals.js";
import htm from "./vendor/htm.js";

/** Builds elements from a template; text is always text, never HTML. */
export const html = htm.bind(createElement);
export {
    computed, effect, Fragment, render, signal, useComputed, useEffect, useLayoutEffect, useMemo, useRef, useSignal, useState,
};
