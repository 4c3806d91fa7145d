// The time of one step on the card: the GPU's operations, a lane for each stream, and above them the memory that was allocated when the
// program requested each operation. A click chooses that moment for all views; the moment of the other views is a line here.

import { moduleLabel, type Work } from "./data";
import { byId, context, el, fill, fitted, hideTip, showTip } from "./dom";
import * as format from "./format";
import { goTo, momentAt, report, timeline } from "./model";
import { background, css, fillOf, swatch } from "./palette";
import { get, on } from "./state";
import { upperBound } from "./timeline";

const kLeft = 58, kRight = 10, kTop = 10, kGap = 8, kAxis = 22;

let work: Work;
let streams: number[];
let lanes: Uint32Array[]; // operations of each stream by start
let laneStarts: Float64Array[];
let byStart: Uint32Array;
let starts: Float64Array; // of byStart
let byPosition: Uint32Array;
let positions: Uint32Array; // of byPosition
let whole: [number, number]; // from the first operation's start to the last one's end
let view: [number, number];
let chosen = -1; // an operation; valid while the moment belongs to it
let busy = 0; // the GPU's time
let width = 0;
let dragged: [number, number] | null = null; // pixels

const canvas = (): HTMLCanvasElement => byId("time");
const name = (index: number): string => work.names[index] ?? "";
const endOf = (i: number): number => work.start[i]! + work.duration[i]!;
const allocatedAt = (i: number): number => timeline.allocated[Math.min(work.position[i]!, report.events)]!;
const laneHeight = (): number => (streams.length <= 6 ? 24 : 12);
const memoryHeight = (): number => (width < 420 ? 110 : 150);
const lanesTop = (): number => kTop + memoryHeight() + kGap;
const height = (): number => lanesTop() + streams.length * laneHeight() + kAxis;
const inner = (): number => Math.max(1, width - kLeft - kRight);
const xOf = (ns: number): number => kLeft + ((ns - view[0]) / (view[1] - view[0])) * inner();
const timeAt = (x: number): number => view[0] + ((x - kLeft) / inner()) * (view[1] - view[0]);

function prepare(): void {
  const all = Array.from({ length: work.count }, (_, i) => i);
  byStart = Uint32Array.from([...all].sort((a, b) => work.start[a]! - work.start[b]! || a - b));
  starts = Float64Array.from(byStart, (i) => work.start[i]!);
  byPosition = Uint32Array.from([...all].sort((a, b) => work.position[a]! - work.position[b]! || a - b));
  positions = byPosition.map((i) => work.position[i]!);
  streams = [...new Set(work.stream)].sort((a, b) => a - b);
  lanes = streams.map((stream) => byStart.filter((i) => work.stream[i] === stream));
  laneStarts = lanes.map((lane) => Float64Array.from(lane, (i) => work.start[i]!));
  // Summed in the program's order, like in `gpucast analyze`.
  const sums = new Map<number, number>();
  for (const i of all) sums.set(work.stream[i]!, (sums.get(work.stream[i]!) ?? 0) + work.duration[i]!);
  busy = report.prediction.gpu_time?.expected_ns ?? Math.max(...sums.values());
  let end = 0;
  for (const i of all) end = Math.max(end, endOf(i));
  const begin = work.start[byStart[0]!]!;
  whole = [begin, Math.max(end, begin + 1)];
  view = whole;
}

// The operation of the moment: the chosen one, or the next one that the program requests. -1: the moment is outside of the step.
function current(): number {
  const { position } = get();
  if (chosen >= 0 && work.position[chosen] === position) return chosen;
  if (position < positions[0]!) return -1;
  return byPosition[upperBound(positions, position - 1)] ?? -1;
}

// ---- drawing -------------------------------------------------------------------------------------------------------------------

// The highest memory in each column of pixels. An operation's memory is valid until the next operation.
function memory(): Float64Array {
  const columns = new Float64Array(inner()).fill(-1);
  const from = Math.max(0, upperBound(starts, view[0]) - 1);
  let last = 0, at = 0;
  for (let k = from; k < byStart.length; ++k) {
    const i = byStart[k]!, bytes = allocatedAt(i);
    if (work.start[i]! > view[1]) break;
    const column = Math.max(0, Math.min(columns.length - 1, Math.floor(xOf(work.start[i]!) - kLeft)));
    for (; at < column; ++at) columns[at] = Math.max(columns[at]!, last);
    columns[column] = Math.max(columns[column]!, last, bytes);
    last = bytes;
  }
  for (; at < columns.length; ++at) columns[at] = Math.max(columns[at]!, last);
  return columns;
}

function drawMemory(ctx: CanvasRenderingContext2D): void {
  const columns = memory();
  let most = 1;
  for (let i = 0; i < work.count; ++i) most = Math.max(most, allocatedAt(i));
  const scale = memoryHeight() / (most * 1.04), bottom = kTop + memoryHeight();
  ctx.font = `11px ${css("--font")}`;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  for (const bytes of format.byteTicks(most, 3)) {
    const y = Math.round(bottom - bytes * scale) - 0.5;
    ctx.fillStyle = css("--grid");
    ctx.fillRect(kLeft, y, inner(), 1);
    ctx.fillStyle = css("--muted");
    ctx.fillText(format.tick(bytes), kLeft - 6, y);
  }
  ctx.fillStyle = css("--life");
  ctx.strokeStyle = css("--accent");
  ctx.lineWidth = 1.5;
  const line = new Path2D(), area = new Path2D();
  area.moveTo(kLeft, bottom);
  columns.forEach((bytes, column) => {
    const y = bottom - bytes * scale;
    for (const path of [line, area]) {
      if (column === 0 && path === line) path.moveTo(kLeft, y);
      path.lineTo(kLeft + column, y);
      path.lineTo(kLeft + column + 1, y);
    }
  });
  area.lineTo(kLeft + columns.length, bottom);
  ctx.fill(area);
  ctx.stroke(line);
}

function drawLane(ctx: CanvasRenderingContext2D, lane: number, fills: Map<number, CanvasPattern | string>): void {
  const top = lanesTop() + lane * laneHeight(), h = laneHeight() - 3, left = kLeft, right = kLeft + inner();
  ctx.fillStyle = css("--cell");
  ctx.fillRect(left, top, inner(), h);
  ctx.fillStyle = css("--muted");
  ctx.font = `11px ${css("--font")}`;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.fillText(fitted(ctx, `stream ${streams[lane]}`, kLeft - 8), kLeft - 6, top + h / 2);
  const fillFor = (kind: number): CanvasPattern | string => {
    let found = fills.get(kind);
    if (found === undefined) fills.set(kind, (found = fillOf(ctx, name(kind))));
    return found;
  };
  // Among operations narrower than a pixel, the longest is drawn.
  let pixel = -1, longest = -1;
  const flushPixel = (): void => {
    if (longest < 0) return;
    ctx.fillStyle = fillFor(work.kind[longest]!);
    ctx.fillRect(pixel, top, 1, h);
    longest = -1;
  };
  ctx.textAlign = "left";
  const list = lanes[lane]!;
  for (let k = Math.max(0, upperBound(laneStarts[lane]!, view[0]) - 1); k < list.length && work.start[list[k]!]! <= view[1]; ++k) {
    const i = list[k]!, x0 = Math.max(left, xOf(work.start[i]!)), x1 = Math.min(right, xOf(endOf(i)));
    if (x1 < left || x0 >= right) continue;
    if (x1 - x0 < 1) {
      const at = Math.floor(x0);
      if (at !== pixel) flushPixel();
      if (longest < 0 || work.duration[i]! > work.duration[longest]!) longest = i;
      pixel = at;
      continue;
    }
    flushPixel();
    ctx.fillStyle = fillFor(work.kind[i]!);
    ctx.fillRect(x0, top, x1 - x0 - (x1 - x0 > 4 ? 1 : 0), h);
  }
  flushPixel();
}

function drawAxis(ctx: CanvasRenderingContext2D): void {
  const y = lanesTop() + streams.length * laneHeight();
  ctx.font = `11px ${css("--font")}`;
  ctx.fillStyle = css("--muted");
  ctx.textBaseline = "top";
  ctx.textAlign = "center";
  const from = view[0] - whole[0], to = view[1] - whole[0];
  for (const tick of format.timeTicks(from, to, inner() / 90)) {
    const x = xOf(tick + whole[0]), text = format.timeTick(tick), half = ctx.measureText(text).width / 2;
    ctx.fillRect(Math.round(x), y, 1, 4);
    ctx.fillText(text, Math.min(Math.max(x, kLeft - 20 + half), width - half), y + 6);
  }
}

function drawMoment(ctx: CanvasRenderingContext2D): void {
  const i = current();
  if (i < 0) return;
  const lane = streams.indexOf(work.stream[i]!), top = lanesTop() + lane * laneHeight();
  const x = xOf(work.start[i]!), x1 = xOf(endOf(i));
  ctx.save();
  ctx.beginPath();
  ctx.rect(kLeft - 7, 0, inner() + 14, height());
  ctx.clip();
  if (chosen === i) {
    ctx.strokeStyle = css("--ink");
    ctx.lineWidth = 2;
    ctx.strokeRect(x, top - 1, Math.max(2, x1 - x), laneHeight() - 1);
  }
  ctx.fillStyle = css("--accent");
  ctx.fillRect(x - 1, kTop - 4, 2, lanesTop() + streams.length * laneHeight() - kTop + 4);
  ctx.beginPath();
  ctx.moveTo(x - 6, kTop - 8);
  ctx.lineTo(x + 6, kTop - 8);
  ctx.lineTo(x, kTop + 1);
  ctx.fill();
  ctx.restore();
}

function draw(): void {
  width = Math.floor(canvas().parentElement!.clientWidth);
  const ctx = context(canvas(), width, height());
  if (!ctx) return;
  drawMemory(ctx);
  const fills = new Map<number, CanvasPattern | string>();
  lanes.forEach((_, lane) => drawLane(ctx, lane, fills));
  drawAxis(ctx);
  if (dragged) {
    ctx.fillStyle = css("--life");
    ctx.fillRect(Math.min(...dragged), kTop, Math.abs(dragged[1] - dragged[0]), height() - kTop - kAxis);
  }
  drawMoment(ctx);
}

// ---- words -----------------------------------------------------------------------------------------------------------------------

const occupancyOf = (i: number): string => (work.occupancy[i]! >= 0 ? format.percent(work.occupancy[i]!, 1) : "");

function tipFor(i: number): (Node | string)[] {
  const line = (what: string, value: string): Node | string => (value ? el("div", { class: "row" }, el("span", {}, what), el("b", {}, value)) : "");
  const kernel = name(work.kernel[i]!), module = moduleLabel(report, work.module[i]!);
  return [
    el("div", { class: "tip-title" }, name(work.name[i]!)),
    el("div", { class: "muted" }, name(work.sizes[i]!)),
    module ? el("div", {}, module) : "",
    el("div", { class: "row" }, el("span", {}, swatch(name(work.kind[i]!)), name(work.kind[i]!)), el("b", {}, format.time(work.duration[i]!))),
    line("bound by", name(work.bound[i]!)),
    line("occupancy", occupancyOf(i)),
    line("phase", format.words(name(work.phase[i]!))),
    line("launches", work.launches[i]! > 1 ? format.whole(work.launches[i]!) : ""),
    line("allocated then", format.bytes(allocatedAt(i))),
    kernel !== name(work.name[i]!) ? el("div", { class: "muted" }, kernel.length > 90 ? `${kernel.slice(0, 90)}…` : kernel) : "",
  ];
}

function words(): void {
  const i = current(), target = byId("time-moment");
  canvas().setAttribute(
    "aria-label",
    `The GPU's ${format.whole(work.count)} operations of step ${work.step}, ${format.time(busy)}. Arrow keys go from one to the next.${i >= 0 ? ` ${name(work.name[i]!)}, ${format.time(work.duration[i]!)}.` : ""}`,
  );
  target.dataset.operation = String(i);
  if (i < 0) {
    const { step } = momentAt(get().position);
    let most = 0;
    for (let k = 1; k < work.count; ++k) if (allocatedAt(k) > allocatedAt(most)) most = k;
    fill(target, `The moment${step ? ` (${step})` : ""} is outside of this step's work. `, el("button", { class: "link", onclick: () => choose(most) }, `Go to where step ${work.step} holds the most`));
    return;
  }
  const module = moduleLabel(report, work.module[i]!);
  fill(
    target,
    chosen === i ? "" : "Next: ",
    el("b", {}, name(work.name[i]!)),
    ` ${[name(work.sizes[i]!), `${format.time(work.duration[i]!)} bound by ${name(work.bound[i]!)}`, occupancyOf(i) && `occupancy ${occupancyOf(i)}`, module, format.words(name(work.phase[i]!)), `${format.bytes(allocatedAt(i))} allocated`].filter((part) => part).join(" · ")}`,
  );
}

function bars(): void {
  const rows = (keys: Uint32Array, byTime: boolean, colours: boolean): HTMLElement[] => {
    const sums = new Map<number, number>();
    for (let i = 0; i < work.count; ++i) sums.set(keys[i]!, (sums.get(keys[i]!) ?? 0) + work.duration[i]!);
    let all = 0;
    for (const ns of sums.values()) all += ns;
    const most = Math.max(...sums.values());
    const list = [...sums];
    if (byTime) list.sort((a, b) => b[1] - a[1]);
    return list.map(([key, ns]) => {
      const strip = el("i", { class: colours ? "strip" : "strip plain", "aria-hidden": "true" });
      strip.style.width = `${most > 0 ? (100 * ns) / most : 0}%`;
      if (colours) strip.style.background = background(name(key));
      return el("div", { class: "time-row", "data-name": name(key), "data-ns": ns }, colours ? swatch(name(key)) : el("i", {}), el("span", { class: "legend-name" }, format.words(name(key))), el("span", { class: "number" }, format.time(ns)), el("span", { class: "number share" }, format.percent(ns, all)), strip);
    });
  };
  fill(byId("time-kinds"), ...rows(work.kind, true, true));
  fill(byId("time-phases"), ...rows(work.phase, false, false));
}

function title(): void {
  const { gpu, gpu_time: range } = report.prediction;
  const heading = byId("time-title");
  heading.dataset.ns = String(busy);
  fill(heading, `Step ${work.step} on ${gpu.full_name || gpu.name}: ${format.time(busy)} of GPU time${range ? ` (${format.timeRange(range.low_ns, range.high_ns, busy)})` : ""}`);
  const parts = [`From the first operation to the last: ${format.time(whole[1] - whole[0])}, when the program asks as fast as on the machine of this run.`];
  let filled = 0, known = 0;
  for (let i = 0; i < work.count; ++i) {
    if (work.occupancy[i]! < 0) continue;
    filled += work.occupancy[i]! * work.duration[i]!;
    known += work.duration[i]!;
  }
  if (known > 0) parts.push(`Occupancy over the kernels' time: ${format.percent(filled, known)}.`);
  if (streams.length > 1) parts.push(`Work of ${streams.length} streams shares the card.`);
  fill(byId("time-note"), parts.join(" "));
}

// ---- mouse and keyboard --------------------------------------------------------------------------------------------------------------

function setTimeView(from: number, to: number): void {
  const all = whole[1] - whole[0], length = Math.max(Math.min(all, 100), Math.min(all, to - from));
  const begin = Math.max(whole[0], Math.min(whole[1] - length, from));
  view = [begin, begin + length];
  draw();
}

function zoom(factor: number, center?: number): void {
  const i = current(), middle = (view[0] + view[1]) / 2;
  const at = center ?? (i >= 0 && work.start[i]! >= view[0] && work.start[i]! <= view[1] ? work.start[i]! : middle);
  setTimeView(at - (at - view[0]) * factor, at + (view[1] - at) * factor);
}

function choose(i: number): void {
  chosen = i;
  goTo(work.position[i]!);
  const length = view[1] - view[0];
  if (work.start[i]! < view[0] || work.start[i]! > view[1]) setTimeView(work.start[i]! - length / 2, work.start[i]! + length / 2);
  else draw();
  words();
}

// The operation under the pointer; above the lanes, the last one that has begun. -1: none.
function operationAt(x: number, y: number): number {
  if (x < kLeft - 3 || x > width - kRight + 3) return -1;
  const at = timeAt(x);
  if (y < lanesTop()) {
    let best = -1;
    lanes.forEach((lane, l) => {
      const i = lane[upperBound(laneStarts[l]!, at) - 1];
      if (i !== undefined && (best < 0 || work.start[i]! > work.start[best]!)) best = i;
    });
    return best;
  }
  const l = Math.floor((y - lanesTop()) / laneHeight());
  const lane = lanes[l];
  if (!lane) return -1;
  const k = upperBound(laneStarts[l]!, at);
  const slack = (3 * (view[1] - view[0])) / inner();
  const before = lane[k - 1], after = lane[k];
  if (before !== undefined && at <= endOf(before)) return before;
  const gapBefore = before === undefined ? Infinity : at - endOf(before), gapAfter = after === undefined ? Infinity : work.start[after]! - at;
  if (Math.min(gapBefore, gapAfter) > slack) return -1;
  return gapBefore <= gapAfter ? before! : after!;
}

// The position of an operation, in pixels of the page, for tests.
export function workCenter(i: number): { x: number; y: number } {
  const box = canvas().getBoundingClientRect();
  return { x: box.left + xOf(work.start[i]! + work.duration[i]! / 2), y: box.top + lanesTop() + (streams.indexOf(work.stream[i]!) + 0.45) * laneHeight() };
}

function listen(): void {
  const element = canvas();
  let downAt: number | null = null;
  element.addEventListener("mousedown", (event) => (downAt = event.offsetX));
  element.addEventListener("mousemove", (event) => {
    if (downAt !== null && event.buttons === 1 && Math.abs(event.offsetX - downAt) >= 4) {
      dragged = [Math.max(kLeft, downAt), Math.max(kLeft, Math.min(width - kRight, event.offsetX))];
      draw();
    }
    const i = operationAt(event.offsetX, event.offsetY);
    if (i >= 0) showTip(event.clientX, event.clientY, ...tipFor(i));
    else hideTip();
  });
  element.addEventListener("mouseleave", () => {
    hideTip();
    downAt = null;
    if (dragged) {
      dragged = null;
      draw();
    }
  });
  element.addEventListener("click", (event) => {
    const range = dragged;
    dragged = downAt = null;
    if (range) {
      const [a, b] = [timeAt(Math.min(...range)), timeAt(Math.max(...range))];
      setTimeView(a, b);
      return;
    }
    const i = operationAt(event.offsetX, event.offsetY);
    if (i >= 0) choose(i);
  });
  element.addEventListener(
    "wheel",
    (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        zoom(Math.exp(event.deltaY * 0.004), timeAt(event.offsetX));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
        event.preventDefault();
        const shift = ((event.deltaX || event.deltaY) / inner()) * (view[1] - view[0]);
        setTimeView(view[0] + shift, view[1] + shift);
      }
    },
    { passive: false },
  );
  element.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = event.shiftKey ? Math.max(1, Math.round(work.count / 100)) : 1;
    const i = current();
    const moves: Record<string, number> = { ArrowRight: chosen < 0 || chosen !== i ? Math.max(0, i) : i + step, ArrowLeft: i < 0 ? work.count - 1 : i - step, Home: 0, End: work.count - 1 };
    const to = moves[event.key];
    if (to !== undefined) choose(Math.max(0, Math.min(work.count - 1, to)));
    else if (event.key === "+" || event.key === "=") zoom(0.5);
    else if (event.key === "-") zoom(2);
    else if (event.key === "0") setTimeView(...whole);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  byId("time-in").addEventListener("click", () => zoom(0.5));
  byId("time-out").addEventListener("click", () => zoom(2));
  byId("time-whole").addEventListener("click", () => setTimeView(...whole));
  new ResizeObserver(() => {
    if (Math.floor(element.parentElement!.clientWidth) !== width) draw();
  }).observe(element.parentElement!);
}

export function initStepTime(): void {
  if (!report.work || report.work.count === 0) return;
  work = report.work;
  byId("time-card").hidden = false;
  prepare();
  title();
  bars();
  words();
  draw();
  listen();
  on(["position"], () => {
    if (chosen >= 0 && work.position[chosen] !== get().position) chosen = -1;
    draw();
    words();
  });
  on(["theme"], () => {
    draw();
    bars();
  });
}
