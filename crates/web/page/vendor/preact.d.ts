import { Child } from "./types.js";
export function createElement(type: any, props: any, ...children: Child[]): Child;
export const Fragment: any;
export function render(child: Child, parent: Element): void;
