// Values that the views need from the report, computed once for each moment and filter.

import { baseName, frameText, moduleLabel, stackOf, text, type Report } from "./data";
import { get, set, type State } from "./state";
import { aliveAt, buildTimeline, bytesOf, categoriesAt, spanAt, waitingAt, type Timeline } from "./timeline";
import { isBelow, moduleTree, stackTree, type NodeTree } from "./tree";

export let report: Report;
export let timeline: Timeline;

export function initModel(decoded: Report): void {
  report = decoded;
  timeline = buildTimeline(decoded);
}

// Remembers the last value, for one key.
function rememberLast<K, V>(make: (key: K) => V, same: (a: K, b: K) => boolean = (a, b) => a === b): (key: K) => V {
  let known: { key: K; value: V } | undefined;
  return (key) => {
    if (!known || !same(known.key, key)) known = { key, value: make(key) };
    return known.value;
  };
}

export const alive = rememberLast((position: number) => aliveAt(report, position));
export const waiting = rememberLast((position: number) => waitingAt(report, position));
export const categories = rememberLast((position: number) => categoriesAt(report, timeline, position));

const trees: Partial<Record<"module" | "stack", NodeTree>> = {};
export const tree = (by: "module" | "stack"): NodeTree => (trees[by] ??= by === "module" ? moduleTree(report) : stackTree(report));

// ---- one block ---------------------------------------------------------------------------------------------------------------

export const sizeOf = (block: number): number => report.kind.size[report.block.kind[block]!]!;
export const categoryOf = (block: number): string => report.categories[report.kind.category[report.block.kind[block]!]!]!;
export function tensorOf(kind: number): string {
  const name = text(report, report.kind.tensor[kind]!);
  return /^\d+$/.test(name) ? `input ${name}` : name; // an input's name is its index among the arguments
}
export const operatorOf = (kind: number): string => report.operators[report.kind.operator[kind]!] ?? "";
export const moduleOf = (kind: number): string => moduleLabel(report, report.kind.module[kind]!);
export const phaseOf = (kind: number): string => (report.explained ? report.phases[report.kind.phase[kind]!]! : "");

// A block's name where there is room for one name only.
export function nameOf(block: number): string {
  const kind = report.block.kind[block]!;
  const module = report.kind.module[kind]!;
  return tensorOf(kind) || (module >= 0 ? moduleOf(kind) : "") || operatorOf(kind) || stackLine(kind) || categoryOf(block).replaceAll("_", " ");
}

const stackLines = new Map<number, string>();
export function stackLine(kind: number): string {
  const stack = report.kind.stack[kind]!;
  if (stack < 0) return "";
  let line = stackLines.get(stack);
  if (line === undefined) {
    const frames = stackOf(report, stack);
    const own = frames.find((frame) => !frame.library) ?? frames[0];
    stackLines.set(stack, (line = own ? `${baseName(own.file)}:${own.line} ${own.name}` : ""));
  }
  return line;
}

// ---- moments ---------------------------------------------------------------------------------------------------------------------

export interface Moment {
  event: string;
  phase: string;
  step: string;
  module: string;
}

export function stepName(step: number): string {
  if (step === 0) return "before step 1";
  const done = report.prediction.steps, reason = report.prediction.end_reason;
  if (step > done && step > 1 && (reason === "steps" || reason === "script_end")) return `after step ${step - 1}`;
  return `step ${step}`;
}

export function momentAt(position: number): Moment {
  const event = position === 0 ? "before the first event" : `event ${(position - 1).toLocaleString("en-US")}`;
  if (!report.explained || report.span.count === 0) return { event, phase: "", step: "", module: "" };
  const span = spanAt(report, position);
  const { phase, step, module } = report.span;
  return { event, phase: report.phases[phase[span]!]!.replaceAll("_", " "), step: stepName(step[span]!), module: moduleLabel(report, module[span]!) };
}

export function goTo(position: number): void {
  const to = Math.max(0, Math.min(report.events, Math.round(position)));
  const [from, end] = get().view;
  set({ position: to });
  if (to < from || to > end) {
    const half = (end - from) / 2;
    setView(to - half, to + half);
  }
}

export function setView(from: number, to: number): void {
  const least = Math.min(report.events, 8);
  let length = Math.max(least, Math.min(report.events, to - from));
  const begin = Math.max(0, Math.min(report.events - length, from));
  length = Math.min(length, report.events - begin);
  set({ view: [Math.round(begin), Math.round(begin + length)] });
}

// ---- the filter ------------------------------------------------------------------------------------------------------------------

export const isFiltered = (): boolean => get().category >= 0 || get().tree !== null || get().search.trim() !== "";

// Finds which of `count` things have the word in their text.
function hits(count: number, word: string, textOf: (i: number) => string): Uint8Array {
  return Uint8Array.from({ length: count }, (_, i) => (textOf(i).toLowerCase().includes(word) ? 1 : 0));
}

// Kinds that contain all words. A text that several kinds share is searched once.
function searchMask(search: string): Uint8Array {
  const { kind } = report;
  const mask = new Uint8Array(kind.count).fill(1);
  for (const word of search.toLowerCase().split(/\s+/).filter((part) => part !== "")) {
    const frames = hits(report.frame.line.length, word, (i) => {
      const frame = frameText(report, i);
      return `${frame.file}:${frame.line} ${frame.name}`;
    });
    const stacks = Uint8Array.from({ length: report.stack.begin.length - 1 }, (_, s) =>
      report.stack.frames.subarray(report.stack.begin[s], report.stack.begin[s + 1]).some((frame) => frames[frame]) ? 1 : 0,
    );
    const categoryHits = hits(report.categories.length, word, (i) => report.categories[i]!.replaceAll("_", " "));
    const phases = hits(report.phases.length, word, (i) => (report.explained ? report.phases[i]!.replaceAll("_", " ") : ""));
    const modules = hits(report.module.count, word, (i) => moduleLabel(report, i));
    const operators = hits(report.operators.length, word, (i) => report.operators[i]!);
    const tensors = hits(report.strings.length, word, (i) => report.strings[i]!);
    for (let k = 0; k < mask.length; ++k) {
      const found =
        categoryHits[kind.category[k]!] ||
        phases[kind.phase[k]!] ||
        modules[kind.module[k]!] ||
        operators[kind.operator[k]!] ||
        tensors[kind.tensor[k]!] ||
        stacks[kind.stack[k]!];
      if (!found) mask[k] = 0;
    }
  }
  return mask;
}

function maskOf(category: number, search: string, at: { by: "module" | "stack"; node: number } | null): Uint8Array {
  const mask = search ? searchMask(search) : new Uint8Array(report.kind.count).fill(1);
  const nodes = at ? tree(at.by) : null;
  for (let k = 0; k < mask.length; ++k) {
    if (category >= 0 && report.kind.category[k] !== category) mask[k] = 0;
    if (nodes && !isBelow(nodes, nodes.ofKind[k]!, at!.node)) mask[k] = 0;
  }
  return mask;
}

function sameFilter(a: Readonly<State>, b: Readonly<State>): boolean {
  return a.category === b.category && a.search.trim() === b.search.trim() && a.tree?.by === b.tree?.by && a.tree?.node === b.tree?.node;
}
const filteredKinds = rememberLast((state: Readonly<State>) => maskOf(state.category, state.search.trim(), state.tree), sameFilter);
const withoutTree = rememberLast((state: Readonly<State>) => maskOf(state.category, state.search.trim(), null), sameFilter);

// The kinds of blocks that pass the filter. The second list ignores the icicle's choice.
export const kindMask = (): Uint8Array => filteredKinds({ ...get() });
export const kindMaskOfAllNodes = (): Uint8Array => withoutTree({ ...get() });

export const filteredBytes = rememberLast((mask: Uint8Array) => bytesOf(report, mask));

// "activations in layer1.0, “conv”"
export function filterWords(): string {
  const { category, tree: at, search } = get();
  const parts = [];
  if (category >= 0) parts.push(report.categories[category]!.replaceAll("_", " "));
  if (at) parts.push(`in ${tree(at.by).nodes[at.node]!.label}`);
  if (search.trim()) parts.push(`“${search.trim()}”`);
  return parts.join(" ");
}
