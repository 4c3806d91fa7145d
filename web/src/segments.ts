// The allocator's segments at the moment, laid out like text: a segment's length shows its bytes, and it is wrapped at the end of a
// row. Blocks have their category's colour; free memory is grey.

import { byId, context, el, fill, fitted, hideTip, showTip } from "./dom";
import * as format from "./format";
import { alive, categoryOf, isFiltered, kindMask, nameOf, operatorOf, report, sizeOf, timeline, waiting } from "./model";
import { color, css, fillOf, inkOn } from "./palette";
import { get, on, set } from "./state";
import { upperBound } from "./timeline";

const kRow = 22, kRowGap = 4, kSegmentGap = 4, kLeastSegment = 3;
const kFree = -1, kWaiting = -2;

interface Bar {
  address: number;
  size: number;
  stream: number;
  expandable: boolean;
  known: boolean; // false: blocks outside of all segments of the history
}

// Pieces of all bars, in the order in which they are drawn.
interface Pieces {
  bars: Bar[];
  begin: Float64Array; // in pixels, along all rows
  end: Float64Array;
  block: Int32Array; // kFree, kWaiting
  bar: Int32Array;
  address: Float64Array;
  size: Float64Array;
}

let pieces: Pieces;
let width = 0, rows = 1, scale = 1;
const canvas = (): HTMLCanvasElement => byId("map");

function barsAt(position: number): Bar[] {
  const { segment } = report;
  const bars: Bar[] = [];
  for (let i = 0, end = upperBound(segment.birth, position); i < end; ++i) {
    if (segment.death[i]! > position)
      bars.push({ address: segment.address[i]!, size: segment.size[i]!, stream: segment.stream[i]!, expandable: segment.expandable[i] === 1, known: true });
  }
  bars.sort((a, b) => a.address - b.address);
  // Adjacent mapped ranges of an expandable segment are joined.
  const joined: Bar[] = [];
  for (const bar of bars) {
    const before = joined[joined.length - 1];
    if (before && before.expandable && bar.expandable && before.stream === bar.stream && before.address + before.size === bar.address) before.size += bar.size;
    else joined.push(bar);
  }
  // Blocks outside of all segments: the file does not contain their segments.
  let at = 0;
  const outside: Bar[] = [];
  for (const block of alive(position)) {
    const address = report.block.address[block]!;
    while (at < joined.length && joined[at]!.address + joined[at]!.size <= address) ++at;
    if (at < joined.length && joined[at]!.address <= address) continue;
    outside.push({ address, size: sizeOf(block), stream: 0, expandable: false, known: false });
  }
  // Small segments are a group at the end, because they would be invisible among large ones.
  const isSmall = (bar: Bar): number => (bar.known ? (bar.size <= 2 * 1024 * 1024 && !bar.expandable ? 1 : 0) : 2);
  return [...joined, ...outside].sort((a, b) => isSmall(a) - isSmall(b) || a.address - b.address);
}

function lengthOf(bar: Bar): number {
  return Math.max(kLeastSegment, bar.size * scale);
}

function layOut(position: number): Pieces {
  const bars = barsAt(position);
  const blocks = alive(position);
  const begin: number[] = [], end: number[] = [], block: number[] = [], barOf: number[] = [], address: number[] = [], size: number[] = [];
  const addresses = Float64Array.from(blocks, (b) => report.block.address[b]!);
  const pending = waiting(position).map((b) => ({ address: report.block.address[b]!, size: sizeOf(b) }));
  let cursor = 0;
  bars.forEach((bar, b) => {
    const perByte = lengthOf(bar) / bar.size, barEnd = bar.address + bar.size;
    let at = bar.address;
    const push = (what: number, from: number, to: number): void => {
      begin.push(cursor + (from - bar.address) * perByte);
      end.push(cursor + (to - bar.address) * perByte);
      block.push(what);
      barOf.push(b);
      address.push(from);
      size.push(to - from);
    };
    const free = (to: number): void => {
      for (const one of pending) {
        if (one.address < at || one.address >= to) continue;
        if (one.address > at) push(kFree, at, one.address);
        at = Math.min(to, one.address + one.size);
        push(kWaiting, one.address, at);
      }
      if (to > at) push(kFree, at, to);
    };
    for (let i = upperBound(addresses, bar.address - 1); i < blocks.length && addresses[i]! < barEnd; ++i) {
      free(addresses[i]!);
      const to = Math.min(barEnd, addresses[i]! + sizeOf(blocks[i]!));
      push(blocks[i]!, addresses[i]!, to);
      at = Math.max(at, to);
    }
    free(barEnd);
    cursor += lengthOf(bar) + kSegmentGap;
  });
  return {
    bars,
    begin: Float64Array.from(begin),
    end: Float64Array.from(end),
    block: Int32Array.from(block),
    bar: Int32Array.from(barOf),
    address: Float64Array.from(address),
    size: Float64Array.from(size),
  };
}

// The scale is the same at every moment, so that the map grows and shrinks with the curve. The peak of reserved fills all rows.
function chooseScale(): void {
  width = Math.floor(canvas().parentElement!.clientWidth);
  const position = report.peakReserved;
  const bars = barsAt(position);
  const total = bars.reduce((sum, bar) => sum + bar.size, 0);
  const wanted = window.innerWidth < 700 ? 16 : 12;
  // Few pieces need few rows.
  for (rows = Math.min(wanted, 1 + bars.length + alive(position).length); rows < 400; rows = Math.ceil(rows * 1.3)) {
    scale = (rows * width - bars.length * kSegmentGap) / Math.max(1, total);
    // Segments with the minimum length take more than their share of pixels.
    for (let again = 0; again < 4 && scale > 0; ++again) {
      const length = bars.reduce((sum, bar) => sum + lengthOf(bar) + kSegmentGap, 0);
      if (length <= rows * width) break;
      scale *= (rows * width) / length;
    }
    if (scale > 0 && bars.reduce((sum, bar) => sum + lengthOf(bar) + kSegmentGap, 0) <= rows * width * 1.001) break;
  }
}

// Calls `use` for each part of [begin, end) pixels that is on one row.
function onRows(begin: number, end: number, use: (x0: number, x1: number, y: number) => void): void {
  for (let at = begin; at < end; ) {
    const row = Math.floor(at / width), stop = Math.min(end, (row + 1) * width);
    use(at - row * width, stop - row * width, row * (kRow + kRowGap));
    at = stop;
    if (stop === begin) break;
  }
}

function draw(): void {
  pieces = layOut(get().position);
  const used = pieces.end.length > 0 ? Math.ceil(pieces.end[pieces.end.length - 1]! / width) : 1;
  const height = Math.max(rows, used) * (kRow + kRowGap) - kRowGap;
  const ctx = context(canvas(), width, height);
  if (!ctx) return;
  const filtered = isFiltered(), mask = kindMask();
  const fills = report.categories.map((category) => fillOf(ctx, category));
  const edge = css("--card"), free = css("--free"), waitingFill = css("--muted");
  ctx.font = `11px ${css("--font")}`;
  ctx.textBaseline = "middle";
  for (let i = 0; i < pieces.begin.length; ++i) {
    const block = pieces.block[i]!;
    const begin = pieces.begin[i]!, end = pieces.end[i]!;
    const kind = block >= 0 ? report.block.kind[block]! : -1;
    const dimmed = filtered && (kind < 0 || !mask[kind]);
    ctx.globalAlpha = dimmed && block >= 0 ? 0.16 : 1;
    ctx.fillStyle = kind >= 0 ? fills[report.kind.category[kind]!]! : block === kWaiting ? waitingFill : free;
    onRows(begin, end, (x0, x1, y) => {
      ctx.fillRect(x0, y, x1 - x0, kRow);
      if (block < 0) return;
      // A thin line between blocks if there is room for it.
      if (x1 - x0 >= 3 && x1 < width) {
        ctx.save();
        ctx.fillStyle = edge;
        ctx.globalAlpha *= 0.9;
        ctx.fillRect(x1 - 1, y, 1, kRow);
        ctx.restore();
      }
    });
    if (block >= 0 && !dimmed && end - begin > 46) nameOn(ctx, block, begin, end);
  }
  ctx.globalAlpha = 1;
  outline(ctx, get().block, css("--ink"), 2);
  if (get().hovered !== get().block) outline(ctx, get().hovered, css("--accent"), 2);
}

// Writes the label on the block's widest row.
function nameOn(ctx: CanvasRenderingContext2D, block: number, begin: number, end: number): void {
  let best: [number, number, number] = [0, 0, 0];
  onRows(begin, end, (x0, x1, y) => {
    if (x1 - x0 > best[1] - best[0]) best = [x0, x1, y];
  });
  const [x0, x1, y] = best, room = x1 - x0 - 10;
  if (room < 30) return;
  // The category's pattern would make letters hard to read, so they get a plain background.
  // The end of a path is its most useful part: "…1.attn.proj".
  const name = nameOf(block);
  const text = ctx.measureText(name).width <= room ? name : fitted(ctx, name.replace(/ \(\w+\)$/, ""), room, "beginning");
  if (text.length < 4) return;
  const measured = ctx.measureText(text).width;
  const category = categoryOf(block);
  ctx.fillStyle = color(category);
  ctx.fillRect(x0 + 3, y + 4, measured + 5, kRow - 8);
  ctx.fillStyle = inkOn(category);
  ctx.fillText(text, x0 + 5, y + kRow / 2 + 0.5);
}

function outline(ctx: CanvasRenderingContext2D, block: number, color: string, line: number): void {
  if (block < 0) return;
  const i = pieces.block.indexOf(block);
  if (i < 0) return;
  onRows(pieces.begin[i]!, Math.max(pieces.end[i]!, pieces.begin[i]! + 2), (x0, x1, y) => {
    ctx.lineWidth = line + 2;
    ctx.strokeStyle = css("--card");
    ctx.strokeRect(x0 - 0.5, y + 0.5, Math.max(3, x1 - x0), kRow - 1);
    ctx.lineWidth = line;
    ctx.strokeStyle = color;
    ctx.strokeRect(x0 - 0.5, y + 0.5, Math.max(3, x1 - x0), kRow - 1);
  });
}

// The piece at a point of the canvas; -1: none. A point near a thin block counts as on it.
function pieceAt(x: number, y: number): number {
  const row = Math.floor(y / (kRow + kRowGap));
  if (x < 0 || x >= width || y - row * (kRow + kRowGap) > kRow) return -1;
  const at = row * width + x;
  const i = upperBound(pieces.begin, at) - 1;
  return i >= 0 && at < pieces.end[i]! ? i : -1;
}

// The position of a block, in pixels of the page, for tests.
export function blockCenter(block: number): { x: number; y: number } | null {
  const i = pieces.block.indexOf(block);
  if (i < 0) return null;
  const middle = (pieces.begin[i]! + pieces.end[i]!) / 2, box = canvas().getBoundingClientRect();
  const row = Math.floor(middle / width);
  return { x: box.left + middle - row * width, y: box.top + row * (kRow + kRowGap) + kRow / 2 };
}

function tipFor(i: number): (Node | string)[] {
  const bar = pieces.bars[pieces.bar[i]!]!, block = pieces.block[i]!;
  const segment = bar.known
    ? el("div", { class: "muted" }, `in ${bar.expandable ? "an expandable" : "a"} segment of ${format.bytes(bar.size)}${bar.stream ? `, stream ${format.address(bar.stream)}` : ""}`)
    : el("div", { class: "muted" }, "in no segment of this history");
  if (block === kFree) return [el("div", { class: "tip-title" }, `${format.bytes(pieces.size[i]!)} free`), segment];
  if (block === kWaiting) return [el("div", { class: "tip-title" }, `${format.bytes(pieces.size[i]!)} freed`), el("div", {}, "another stream may still use it"), segment];
  const kind = report.block.kind[block]!;
  return [
    el("div", { class: "tip-title" }, nameOf(block)),
    el("div", { class: "row" }, el("span", {}, format.words(categoryOf(block))), el("b", {}, format.bytes(sizeOf(block)))),
    operatorOf(kind) ? el("div", { class: "muted" }, operatorOf(kind)) : "",
    segment,
  ];
}

// The next block by address, for the keyboard.
function neighbour(direction: 1 | -1): number {
  const list = Array.from(pieces.block).filter((block) => block >= 0);
  if (list.length === 0) return -1;
  const at = list.indexOf(get().block);
  return list[at < 0 ? 0 : Math.max(0, Math.min(list.length - 1, at + direction))]!;
}

function summary(): void {
  const position = get().position;
  const allocated = timeline.allocated[position]!, reserved = timeline.reserved[position]!;
  const known = pieces.bars.filter((bar) => bar.known);
  let largest = 0;
  for (let i = 0; i < pieces.block.length; ++i) if (pieces.block[i] === kFree) largest = Math.max(largest, pieces.size[i]!);
  const count = pieces.block.filter((block) => block >= 0).length;
  fill(
    byId("map-note"),
    known.length === 0 && count === 0
      ? "Nothing is allocated at this moment."
      : `${format.whole(known.length)} segment${known.length === 1 ? "" : "s"} of ${format.bytes(reserved)}, ${format.whole(count)} block${count === 1 ? "" : "s"} of ${format.bytes(allocated)}; the largest free piece is ${format.bytes(largest)}.`,
  );
  canvas().setAttribute("aria-label", `Segment map: ${byId("map-note").textContent}. Arrow keys go from block to block.`);
}

export function initSegments(): void {
  const element = canvas();
  chooseScale();
  draw();
  summary();
  on(["position", "block", "hovered", "category", "tree", "search", "theme"], draw);
  on(["position"], summary);
  element.addEventListener("mousemove", (event) => {
    const i = pieceAt(event.offsetX, event.offsetY);
    set({ hovered: i >= 0 && pieces.block[i]! >= 0 ? pieces.block[i]! : -1 });
    element.style.cursor = i >= 0 && pieces.block[i]! >= 0 ? "pointer" : "default";
    if (i >= 0) showTip(event.clientX, event.clientY, ...tipFor(i));
    else hideTip();
  });
  element.addEventListener("mouseleave", () => {
    set({ hovered: -1 });
    hideTip();
  });
  element.addEventListener("click", (event) => {
    const i = pieceAt(event.offsetX, event.offsetY);
    set({ block: i >= 0 && pieces.block[i]! >= 0 ? pieces.block[i]! : -1 });
  });
  element.addEventListener("keydown", (event) => {
    const direction = event.key === "ArrowRight" || event.key === "ArrowDown" ? 1 : event.key === "ArrowLeft" || event.key === "ArrowUp" ? -1 : 0;
    if (direction === 0) return;
    event.preventDefault();
    event.stopPropagation();
    set({ block: neighbour(direction) });
  });
  new ResizeObserver(() => {
    if (Math.floor(element.parentElement!.clientWidth) === width) return;
    chooseScale();
    draw();
  }).observe(element.parentElement!);
}
