/** The few types of the vendored libraries that the page uses. */
export type Child = any;
export interface Signal<T> { value: T; peek(): T; subscribe(f: (value: T) => void): () => void }
export interface ReadonlySignal<T> { readonly value: T; peek(): T }
