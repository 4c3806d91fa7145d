// State that all views share: the moment, the selection and the filter. A view changes it with set(), and redraws when its listener is
// called.

export interface Tree {
  by: "module" | "stack";
  node: number;
}

export interface State {
  position: number;
  block: number; // selected, -1: none
  hovered: number; // the block under the pointer in any view
  category: number; // only this one, -1: all
  tree: Tree | null; // only blocks below this node of the icicle
  by: "module" | "stack";
  search: string;
  view: [number, number]; // positions that the curve shows
  theme: number; // counts changes
}

type Key = keyof State;
type Listener = (changed: Set<Key>) => void;

let state: State;
const listeners: { keys: Key[]; listener: Listener }[] = [];
const pending = new Set<Key>();
let scheduled = false;

export function initState(initial: State): void {
  state = initial;
}

export const get = (): Readonly<State> => state;

export function set(patch: Partial<State>): void {
  for (const key of Object.keys(patch) as Key[]) {
    if (state[key] === patch[key]) continue;
    (state as unknown as Record<Key, unknown>)[key] = patch[key];
    pending.add(key);
  }
  if (pending.size > 0 && !scheduled) {
    scheduled = true;
    requestAnimationFrame(flush);
  }
}

// Calls the listeners now, so that everything is drawn when it returns.
export function flush(): void {
  scheduled = false;
  while (pending.size > 0) {
    const changed = new Set(pending);
    pending.clear();
    for (const { keys, listener } of listeners) {
      if (keys.some((key) => changed.has(key))) listener(changed);
    }
  }
}

// Listeners are called in the order of the calls to on().
export function on(keys: Key[], listener: Listener): void {
  listeners.push({ keys, listener });
}
