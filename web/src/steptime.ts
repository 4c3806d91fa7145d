// The time of one step on the card: the GPU's operations, a lane for each stream, and above them the memory that was allocated when the
// program requested each operation. A click chooses that moment for all views; the moment of the other views is a line here.

import { moduleLabel, type Work } from "./data";
import { byId, el, fill, fitted, hideTip, showTip } from "./dom";
import * as format from "./format";
import { goTo, momentAt, report, timeline } from "./model";
import { background, css, fillOf, swatch } from "./palette";
import { get, on } from "./state";
import { upperBound } from "./timeline";
import { drawLane, laneOf, sliceAt, TimeView, type Lane } from "./timeview";

const kLeft = 58, kRight = 10, kTop = 10, kGap = 8, kAxis = 22;

let work: Work;
let streams: number[];
let lanes: Lane[]; // operations of each stream
let byStart: Uint32Array;
let starts: Float64Array; // of byStart
let byPosition: Uint32Array;
let positions: Uint32Array; // of byPosition
let time: TimeView; // from the first operation's start to the last one's end
let chosen = -1; // an operation; valid while the moment belongs to it
let busy = 0; // the GPU's time

const canvas = (): HTMLCanvasElement => byId("time");
const name = (index: number): string => work.names[index] ?? "";
const endOf = (i: number): number => work.start[i]! + work.duration[i]!;
const allocatedAt = (i: number): number => timeline.allocated[Math.min(work.position[i]!, report.events)]!;
const laneHeight = (): number => (streams.length <= 6 ? 24 : 12);
const memoryHeight = (): number => (time.width < 420 ? 110 : 150);
const lanesTop = (): number => kTop + memoryHeight() + kGap;
const height = (): number => lanesTop() + streams.length * laneHeight() + kAxis;
function prepare(): void {
  const all = Array.from({ length: work.count }, (_, i) => i);
  byStart = Uint32Array.from([...all].sort((a, b) => work.start[a]! - work.start[b]! || a - b));
  starts = Float64Array.from(byStart, (i) => work.start[i]!);
  byPosition = Uint32Array.from([...all].sort((a, b) => work.position[a]! - work.position[b]! || a - b));
  positions = byPosition.map((i) => work.position[i]!);
  streams = [...new Set(work.stream)].sort((a, b) => a - b);
  lanes = streams.map((stream) => laneOf(byStart.filter((i) => work.stream[i] === stream), work.start));
  // Summed in the program's order, like in `gpucast analyze`.
  const sums = new Map<number, number>();
  for (const i of all) sums.set(work.stream[i]!, (sums.get(work.stream[i]!) ?? 0) + work.duration[i]!);
  busy = report.prediction.gpu_time?.expected_ns ?? Math.max(...sums.values());
  let end = 0;
  for (const i of all) end = Math.max(end, endOf(i));
  const begin = work.start[byStart[0]!]!;
  time = new TimeView(canvas(), [begin, Math.max(end, begin + 1)], kLeft, kRight, draw);
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
  const columns = new Float64Array(time.inner()).fill(-1);
  const from = Math.max(0, upperBound(starts, time.view[0]) - 1);
  let last = 0, at = 0;
  for (let k = from; k < byStart.length; ++k) {
    const i = byStart[k]!, bytes = allocatedAt(i);
    if (work.start[i]! > time.view[1]) break;
    const column = Math.max(0, Math.min(columns.length - 1, Math.floor(time.xOf(work.start[i]!) - kLeft)));
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
    ctx.fillRect(kLeft, y, time.inner(), 1);
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

function drawStream(ctx: CanvasRenderingContext2D, lane: number, fills: Map<number, CanvasPattern | string>): void {
  const top = lanesTop() + lane * laneHeight(), h = laneHeight() - 3;
  ctx.fillStyle = css("--cell");
  ctx.fillRect(kLeft, top, time.inner(), h);
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
  const paint = (i: number, x: number, w: number): void => {
    ctx.fillStyle = fillFor(work.kind[i]!);
    ctx.fillRect(x, top, w, h);
  };
  drawLane(time, lanes[lane]!, endOf, (i, x0, x1) => paint(i, x0, x1 - x0 - (x1 - x0 > 4 ? 1 : 0)), (i, x) => paint(i, x, 1));
}

function drawMoment(ctx: CanvasRenderingContext2D): void {
  const i = current();
  if (i < 0) return;
  const lane = streams.indexOf(work.stream[i]!), top = lanesTop() + lane * laneHeight();
  const x = time.xOf(work.start[i]!), x1 = time.xOf(endOf(i));
  ctx.save();
  ctx.beginPath();
  ctx.rect(kLeft - 7, 0, time.inner() + 14, height());
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
  const ctx = time.context(height);
  if (!ctx) return;
  drawMemory(ctx);
  const fills = new Map<number, CanvasPattern | string>();
  lanes.forEach((_, lane) => drawStream(ctx, lane, fills));
  time.drawAxis(ctx, height() - kAxis, time.whole[0]);
  time.drawDragged(ctx, kTop, height() - kAxis);
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
  const parts = [`From the first operation to the last: ${format.time(time.whole[1] - time.whole[0])}, when the program asks as fast as on the machine of this run.`];
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

function zoom(factor: number): void {
  const i = current(), inView = i >= 0 && work.start[i]! >= time.view[0] && work.start[i]! <= time.view[1];
  time.zoom(factor, inView ? work.start[i]! : undefined);
}

function choose(i: number): void {
  chosen = i;
  goTo(work.position[i]!);
  const length = time.view[1] - time.view[0];
  if (work.start[i]! < time.view[0] || work.start[i]! > time.view[1]) time.show(work.start[i]! - length / 2, work.start[i]! + length / 2);
  else draw();
  words();
}

// The operation under the pointer; above the lanes, the last one that has begun. -1: none.
function operationAt(x: number, y: number): number {
  if (x < kLeft - 3 || x > time.width - kRight + 3) return -1;
  const at = time.timeAt(x);
  if (y < lanesTop()) {
    let best = -1;
    for (const { slices, starts } of lanes) {
      const i = slices[upperBound(starts, at) - 1];
      if (i !== undefined && (best < 0 || work.start[i]! > work.start[best]!)) best = i;
    }
    return best;
  }
  const lane = lanes[Math.floor((y - lanesTop()) / laneHeight())];
  return lane ? sliceAt(time, lane, at, endOf) : -1;
}

// The position of an operation, in pixels of the page, for tests.
export function workCenter(i: number): { x: number; y: number } {
  const box = canvas().getBoundingClientRect();
  return { x: box.left + time.xOf(work.start[i]! + work.duration[i]! / 2), y: box.top + lanesTop() + (streams.indexOf(work.stream[i]!) + 0.45) * laneHeight() };
}

function listen(): void {
  const element = canvas();
  time.listen(
    (event) => {
      const i = operationAt(event.offsetX, event.offsetY);
      if (i >= 0) showTip(event.clientX, event.clientY, ...tipFor(i));
      else hideTip();
    },
    (event) => {
      const i = operationAt(event.offsetX, event.offsetY);
      if (i >= 0) choose(i);
    },
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
    else if (event.key === "0") time.showWhole();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  byId("time-in").addEventListener("click", () => zoom(0.5));
  byId("time-out").addEventListener("click", () => zoom(2));
  byId("time-whole").addEventListener("click", () => time.showWhole());
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
