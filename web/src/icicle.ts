// The tree of the moment's bytes: modules below modules, or Python frames below frames. The width of a cell is proportional to its
// bytes; the strip at its foot shows their categories.

import { byId, context, el, fill, fitted, hideTip, showTip } from "./dom";
import * as format from "./format";
import { alive, kindMaskOfAllNodes, report, tree } from "./model";
import { css, fillOf, stackingOrder, swatch } from "./palette";
import { get, on, set } from "./state";
import type { NodeTree } from "./tree";

const kCell = 34, kStrip = 7, kMostRows = 14;

interface Cell {
  node: number;
  depth: number;
  x0: number;
  x1: number;
}

let bytes: Float64Array; // of each node with everything below it, by category
let cells: Cell[] = [];
let top = 0; // node that fills the width
let width = 0;
let order: number[];

const canvas = (): HTMLCanvasElement => byId("icicle");
const total = (node: number): number => {
  const count = report.categories.length;
  let sum = 0;
  for (let c = 0; c < count; ++c) sum += bytes[node * count + c]!;
  return sum;
};

function sumUp(nodes: NodeTree): void {
  const count = report.categories.length;
  bytes = new Float64Array(nodes.nodes.length * count);
  const mask = kindMaskOfAllNodes();
  for (const block of alive(get().position)) {
    const kind = report.block.kind[block]!;
    if (!mask[kind]) continue;
    bytes[nodes.ofKind[kind]! * count + report.kind.category[kind]!]! += report.kind.size[kind]!;
  }
  // Children have higher numbers in depth-first order: from the last to the first, each adds to its parent.
  const byEnter = new Int32Array(nodes.nodes.length);
  nodes.enter.forEach((place, node) => (byEnter[place] = node));
  for (let i = byEnter.length - 1; i > 0; --i) {
    const node = byEnter[i]!, parent = nodes.nodes[node]!.parent;
    for (let c = 0; c < count; ++c) bytes[parent * count + c]! += bytes[node * count + c]!;
  }
}

function layOut(nodes: NodeTree): void {
  cells = [];
  const at = get().tree;
  top = at && at.by === get().by ? at.node : 0;
  // A chain of nodes with one child each shows nothing, so start at the first branch, but keep the user's choice.
  if (!at) {
    for (;;) {
      const below = nodes.nodes[top]!.children.filter((child) => total(child) > 0);
      if (below.length !== 1 || total(below[0]!) < total(top)) break;
      top = below[0]!;
    }
    if (nodes.nodes[top]!.children.length === 0) top = 0;
  }
  const whole = total(top);
  if (whole <= 0) return;
  const place = (node: number, depth: number, x0: number): void => {
    const length = (total(node) / whole) * width;
    cells.push({ node, depth, x0, x1: x0 + length });
    if (depth + 1 >= kMostRows) return;
    let x = x0;
    let children = nodes.nodes[node]!.children;
    if (get().by === "stack") children = [...children].sort((a, b) => total(b) - total(a));
    for (const child of children) {
      const size = (total(child) / whole) * width;
      if (size >= 0.4) place(child, depth + 1, x);
      x += size;
    }
  };
  place(top, 0, 0);
}

function draw(): void {
  width = Math.floor(canvas().parentElement!.clientWidth);
  const nodes = tree(get().by);
  sumUp(nodes);
  layOut(nodes);
  const depth = cells.reduce((most, cell) => Math.max(most, cell.depth), 0) + 1;
  const ctx = context(canvas(), width, depth * kCell);
  if (!ctx) return;
  const count = report.categories.length;
  const fills = report.categories.map((category) => fillOf(ctx, category));
  const ink = css("--ink"), muted = css("--muted"), cell = css("--cell"), gap = css("--card");
  const { block } = get();
  const selected = block >= 0 && get().position >= report.block.birth[block]! && get().position < report.block.death[block]! ? nodes.ofKind[report.block.kind[block]!]! : -1;
  ctx.textBaseline = "middle";
  for (const { node, depth: row, x0, x1 } of cells) {
    const y = row * kCell, w = Math.max(0.5, x1 - x0 - (x1 - x0 > 3 ? 1 : 0));
    ctx.fillStyle = cell;
    ctx.fillRect(x0, y, w, kCell - 1);
    let x = x0;
    const all = total(node);
    for (const category of order) {
      const part = (bytes[node * count + category]! / all) * w;
      if (part <= 0) continue;
      ctx.fillStyle = fills[category]!;
      ctx.fillRect(x, y + kCell - 1 - kStrip, part, kStrip);
      x += part;
    }
    if (w > 26) {
      ctx.font = `${node === selected ? "600 " : ""}12px ${css("--font")}`;
      ctx.fillStyle = ink;
      const size = format.bytes(all);
      const name = nodes.nodes[node]!.label;
      const nameWidth = ctx.measureText(name).width;
      ctx.fillText(fitted(ctx, name, w - 10), x0 + 5, y + (kCell - kStrip) / 2);
      ctx.font = `11px ${css("--font")}`;
      const sizeWidth = ctx.measureText(size).width;
      if (nameWidth + sizeWidth + 22 < w) {
        ctx.fillStyle = muted;
        ctx.fillText(size, x0 + 5 + nameWidth + 8, y + (kCell - kStrip) / 2 + 0.5);
      }
    }
    if (node === selected) {
      ctx.strokeStyle = gap;
      ctx.lineWidth = 4;
      ctx.strokeRect(x0 + 1, y + 1, w - 2, kCell - 3);
      ctx.strokeStyle = ink;
      ctx.lineWidth = 2;
      ctx.strokeRect(x0 + 1, y + 1, w - 2, kCell - 3);
    }
  }
  crumbs(nodes);
}

function crumbs(nodes: NodeTree): void {
  const path: number[] = [];
  for (let node = top; node >= 0; node = nodes.nodes[node]!.parent) path.unshift(node);
  const at = get().tree;
  const items = path.map((node, i) => {
    const last = i === path.length - 1;
    return el("button", { class: "crumb", title: nodes.nodes[node]!.full, "aria-current": last && at ? "true" : undefined, onclick: () => choose(node) }, nodes.nodes[node]!.label);
  });
  const empty = total(top) <= 0;
  fill(
    byId("icicle-path"),
    ...items.flatMap((item, i) => (i === 0 ? [item] : [el("span", { class: "muted", "aria-hidden": "true" }, "›"), item])),
    empty ? el("span", { class: "muted" }, "nothing is allocated here at this moment") : "",
  );
  canvas().setAttribute("aria-label", `Icicle of ${get().by === "module" ? "modules" : "Python frames"}, ${format.bytes(total(top))} in ${nodes.nodes[top]!.full}. Arrow keys go through it.`);
  for (const by of ["module", "stack"] as const) byId(`by-${by}`).setAttribute("aria-pressed", String(get().by === by));
}

function choose(node: number): void {
  set({ tree: node === 0 ? null : { by: get().by, node } });
}

function cellAt(x: number, y: number): Cell | undefined {
  const row = Math.floor(y / kCell);
  return cells.find((cell) => cell.depth === row && x >= cell.x0 && x < Math.max(cell.x1, cell.x0 + 1));
}

// The position of a node, in pixels of the page, for tests.
export function nodeCenter(full: string): { x: number; y: number } | null {
  const nodes = tree(get().by);
  const cell = cells.find((one) => nodes.nodes[one.node]!.full === full);
  if (!cell) return null;
  const box = canvas().getBoundingClientRect();
  return { x: box.left + (cell.x0 + cell.x1) / 2, y: box.top + (cell.depth + 0.5) * kCell };
}

function tipFor(node: number): (Node | string)[] {
  const nodes = tree(get().by), count = report.categories.length;
  const itself = total(node) - nodes.nodes[node]!.children.reduce((sum, child) => sum + total(child), 0);
  const lines = order
    .filter((category) => bytes[node * count + category]! > 0)
    .sort((a, b) => bytes[node * count + b]! - bytes[node * count + a]!)
    .map((category) => {
      const name = report.categories[category]!;
      return el("div", { class: "row" }, el("span", {}, swatch(name), format.words(name)), el("b", {}, format.bytes(bytes[node * count + category]!)));
    });
  return [
    el("div", { class: "tip-title" }, nodes.nodes[node]!.full),
    el("div", { class: "row" }, el("span", {}, format.percent(total(node), total(0)), " of the moment"), el("b", {}, format.bytes(total(node)))),
    ...lines,
    nodes.nodes[node]!.children.length > 0 && itself > 0 ? el("div", { class: "muted" }, `${format.bytes(itself)} of it in no part below`) : "",
  ];
}

function walk(key: string): void {
  const nodes = tree(get().by), at = get().tree && get().tree!.by === get().by ? get().tree!.node : top;
  const visible = (list: number[]): number[] => list.filter((node) => total(node) > 0);
  const parent = nodes.nodes[at]!.parent;
  if (key === "ArrowUp" && parent >= 0) choose(parent);
  if (key === "ArrowDown") {
    const child = visible(nodes.nodes[at]!.children)[0];
    if (child !== undefined) choose(child);
  }
  if ((key === "ArrowLeft" || key === "ArrowRight") && parent >= 0) {
    // The bytes of its neighbours are summed even while one node fills the width.
    const siblings = visible(nodes.nodes[parent]!.children), i = siblings.indexOf(at);
    const next = siblings[i + (key === "ArrowRight" ? 1 : -1)];
    if (next !== undefined) choose(next);
  }
}

export function initIcicle(): void {
  order = stackingOrder(report.categories);
  draw();
  on(["position", "block", "category", "tree", "search", "by", "theme"], draw);
  for (const by of ["module", "stack"] as const) byId(`by-${by}`).addEventListener("click", () => set({ by, tree: null }));
  const element = canvas();
  element.addEventListener("mousemove", (event) => {
    const cell = cellAt(event.offsetX, event.offsetY);
    element.style.cursor = cell ? "pointer" : "default";
    if (cell) showTip(event.clientX, event.clientY, ...tipFor(cell.node));
    else hideTip();
  });
  element.addEventListener("mouseleave", hideTip);
  element.addEventListener("click", (event) => {
    const cell = cellAt(event.offsetX, event.offsetY);
    if (!cell) return;
    const at = get().tree;
    // A second click on the node that fills the width goes up again.
    choose(at && at.by === get().by && at.node === cell.node ? Math.max(0, tree(get().by).nodes[cell.node]!.parent) : cell.node);
    hideTip();
  });
  element.addEventListener("keydown", (event) => {
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    event.stopPropagation();
    walk(event.key);
  });
  new ResizeObserver(() => {
    if (Math.floor(element.parentElement!.clientWidth) !== width) draw();
  }).observe(element.parentElement!);
}

