type Cleanup = void | (() => void);
export function useEffect(run: () => Cleanup, on?: readonly unknown[]): void;
export function useLayoutEffect(run: () => Cleanup, on?: readonly unknown[]): void;
export function useMemo<T>(make: () => T, on: readonly unknown[]): T;
export function useRef<T>(initial: T): { current: T };
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((old: T) => T)) => void];
