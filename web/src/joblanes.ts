// The shown ranks on one clock: a row for each stream. Communication has the colour of its purpose; while it waits for other ranks, only
// its outline.

import { byId, el, fill, fitted, hideTip, showTip } from "./dom";
import * as format from "./format";
import type { Job } from "./jobdata";
import { color, css, fillOf, swatch } from "./palette";
import { upperBound } from "./timeline";
import { drawLane, laneOf, sliceAt, TimeView, type Lane } from "./timeview";

const kLeft = 132, kRight = 10, kLaneGap = 10, kAxis = 22, kMostArrows = 300;
const kProducts = new Set(["gemm", "convolution", "attention", "recurrent"]);

interface Row {
  lane: number; // in Job.lanes
  stream: number;
  label: string;
  slices: Lane;
  critical: Lane;
}

let job: Job;
let rows: Row[];
let rowOfSlice: Uint32Array;
let time: TimeView;
let chosen = -1;

const text = (index: number): string => job.texts[index] ?? "";
const purposeOf = (i: number): string => text(job.slices.purpose[i]!);
const endOf = (i: number): number => job.slices.end[i]!;
const styleOf = (i: number): string => purposeOf(i) || (kProducts.has(text(job.slices.kind[i]!)) ? "products" : "other_kernels");
const rowHeight = (): number => (rows.length <= 16 ? 20 : rows.length <= 60 ? 12 : 8);
const isTall = (): boolean => rows.length > 30; // the axis is above the rows, too
const top = (): number => (isTall() ? 40 : 18);
const rowTop = (row: number): number => top() + row * rowHeight() + rows[row]!.lane * kLaneGap;
const bottom = (): number => rowTop(rows.length - 1) + rowHeight();
const height = (): number => bottom() + kAxis;
const barHeight = (): number => rowHeight() - (rowHeight() > 10 ? 4 : 2);

function prepare(): void {
  const { slices } = job, streams = job.lanes.map(() => new Map<number, number[]>());
  for (let i = 0; i < slices.count; ++i) {
    const found = streams[slices.lane[i]!]!, list = found.get(slices.stream[i]!);
    if (list) list.push(i);
    else found.set(slices.stream[i]!, [i]);
  }
  rows = [];
  rowOfSlice = new Uint32Array(slices.count);
  streams.forEach((found, lane) => {
    const communicates = (list: number[]): boolean => list.every((i) => purposeOf(i) !== "");
    const ordered = [...found].sort((a, b) => Number(communicates(a[1])) - Number(communicates(b[1])) || a[0] - b[0]);
    for (const [stream, list] of ordered) {
      for (const i of list) rowOfSlice[i] = rows.length;
      const all = Uint32Array.from(list);
      rows.push({ lane, stream, label: communicates(list) ? "NCCL" : "compute", slices: laneOf(all, slices.start), critical: laneOf(all.filter((i) => slices.critical[i] === 1), slices.start) });
    }
  });
}

// ---- drawing -------------------------------------------------------------------------------------------------------------------

function drawNames(ctx: CanvasRenderingContext2D): void {
  ctx.textBaseline = "middle";
  const seen = new Set<number>();
  rows.forEach((row, r) => {
    const middle = rowTop(r) + barHeight() / 2;
    if (!seen.has(row.lane)) {
      seen.add(row.lane);
      ctx.fillStyle = css("--ink");
      ctx.font = `600 12px ${css("--font")}`;
      ctx.textAlign = "left";
      ctx.fillText(fitted(ctx, `rank ${job.lanes[row.lane]!.rank}`, time.left - 66), 0, Math.max(middle, rowTop(r) + 5));
    }
    if (rowHeight() < 12) return;
    ctx.fillStyle = css("--muted");
    ctx.font = `10.5px ${css("--font")}`;
    ctx.textAlign = "right";
    ctx.fillText(row.label, time.left - 6, middle);
  });
}

function drawSlice(ctx: CanvasRenderingContext2D, i: number, top: number, x0: number, x1: number): void {
  const h = barHeight(), style = styleOf(i);
  ctx.fillStyle = fillOf(ctx, style);
  const moves = purposeOf(i) ? Math.min(x1, Math.max(x0, time.xOf(job.slices.moves[i]!))) : x0;
  if (x1 > moves) ctx.fillRect(moves, top, x1 - moves - (x1 - moves > 4 ? 1 : 0), h);
  if (moves - x0 < 1) return;
  ctx.globalAlpha = 0.18;
  ctx.fillStyle = color(style);
  ctx.fillRect(x0, top, moves - x0, h);
  ctx.globalAlpha = 1;
  ctx.strokeStyle = color(style);
  ctx.lineWidth = 1;
  ctx.strokeRect(x0 + 0.5, top + 0.5, Math.max(0, moves - x0 - 1), h - 1);
}

function drawRow(ctx: CanvasRenderingContext2D, r: number): void {
  const row = rows[r]!, top = rowTop(r), h = barHeight();
  ctx.fillStyle = css("--cell");
  ctx.fillRect(time.left, top, time.inner(), h);
  drawLane(
    time,
    row.slices,
    endOf,
    (i, x0, x1) => drawSlice(ctx, i, top, x0, x1),
    (i, x) => {
      ctx.fillStyle = color(styleOf(i));
      ctx.fillRect(x, top, 1, h);
    },
  );
  ctx.fillStyle = css("--bad");
  const mark = (x: number, width: number): void => ctx.fillRect(x, top + h, width, rowHeight() > 10 ? 3 : 2);
  // Of communication that waited, the path has the end: before that it is on the rank that came last.
  drawLane(
    time,
    row.critical,
    endOf,
    (i, x0, x1) => {
      const from = Math.min(x1 - 1, Math.max(x0, time.xOf(job.slices.moves[i]!)));
      mark(from, x1 - from);
    },
    (_, x) => mark(x, 1),
  );
}

function drawEdges(ctx: CanvasRenderingContext2D): void {
  ctx.font = `10.5px ${css("--font")}`;
  ctx.textBaseline = "top";
  for (const [ns, name] of [[0, "step begins"], [job.played, "step ends"]] as const) {
    const x = time.xOf(ns);
    if (x < time.left - 1 || x > time.left + time.inner() + 1) continue;
    ctx.fillStyle = css("--muted");
    ctx.fillRect(Math.round(x), top() - 4, 1, bottom() - top() + 8);
    ctx.textAlign = ns === 0 ? "left" : "right";
    ctx.fillText(name, x, 0);
  }
}

// From the send to the end of the receive.
function drawArrow(ctx: CanvasRenderingContext2D, message: number, strong: boolean): void {
  const from = job.messages.from[message]!, to = job.messages.to[message]!, h = barHeight();
  const x0 = time.xOf(job.slices.moves[from]!), x1 = time.xOf(endOf(to));
  const y0 = rowTop(rowOfSlice[from]!) + h / 2, y1 = rowTop(rowOfSlice[to]!) + h / 2;
  ctx.strokeStyle = ctx.fillStyle = strong ? css("--ink") : css("--muted");
  ctx.globalAlpha = strong ? 1 : 0.45;
  ctx.lineWidth = strong ? 1.5 : 1;
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
  const angle = Math.atan2(y1 - y0, x1 - x0);
  ctx.beginPath();
  ctx.moveTo(x1, y1);
  for (const turn of [-0.4, 0.4]) ctx.lineTo(x1 - 6 * Math.cos(angle + turn), y1 - 6 * Math.sin(angle + turn));
  ctx.fill();
  ctx.globalAlpha = 1;
}

function drawMessages(ctx: CanvasRenderingContext2D): void {
  const { from, to } = job.messages, shown: number[] = [];
  for (let m = 0; m < from.length; ++m) {
    if (endOf(to[m]!) >= time.view[0] && job.slices.start[from[m]!]! <= time.view[1]) shown.push(m);
  }
  ctx.save();
  ctx.beginPath();
  ctx.rect(time.left, top(), time.inner(), bottom() - top());
  ctx.clip();
  if (shown.length <= kMostArrows) for (const m of shown) drawArrow(ctx, m, false);
  for (const m of shown) if (chosen >= 0 && (from[m] === chosen || to[m] === chosen)) drawArrow(ctx, m, true);
  ctx.restore();
}

function drawChosen(ctx: CanvasRenderingContext2D): void {
  if (chosen < 0) return;
  const x0 = Math.max(time.left, time.xOf(job.slices.start[chosen]!)), x1 = Math.min(time.left + time.inner(), time.xOf(endOf(chosen)));
  if (x1 < x0) return;
  ctx.strokeStyle = css("--ink");
  ctx.lineWidth = 2;
  ctx.strokeRect(x0, rowTop(rowOfSlice[chosen]!) - 1, Math.max(2, x1 - x0), barHeight() + 2);
}

function draw(): void {
  const ctx = time.context(height);
  if (!ctx) return;
  drawNames(ctx);
  rows.forEach((_, r) => drawRow(ctx, r));
  drawEdges(ctx);
  drawMessages(ctx);
  time.drawAxis(ctx, bottom() + 2, 0);
  if (isTall()) time.drawAxis(ctx, 15, 0);
  time.drawDragged(ctx, top(), bottom());
  drawChosen(ctx);
}

// ---- words -----------------------------------------------------------------------------------------------------------------------

type Line = [string, string];

function linesOf(i: number): Line[] {
  const { slices } = job, out: Line[] = [];
  const waited = slices.moves[i]! - slices.start[i]!;
  out.push(["begins at", format.time(slices.start[i]!)], ["takes", format.time(endOf(i) - slices.start[i]!)]);
  if (purposeOf(i)) {
    if (slices.waitsFor[i]! >= 0) out.push([`of it waits for rank ${slices.waitsFor[i]}`, format.time(waited)]);
    out.push(["moves", `${(slices.bytes[i]! / 1e6).toFixed(2)} MB in ${format.time(endOf(i) - slices.moves[i]!)}`]);
    if (slices.nodes[i]! > 1) out.push(["over", `${slices.nodes[i]} nodes`]);
  } else {
    out.push(["kind", text(slices.kind[i]!)]);
  }
  out.push(["launched at", format.time(slices.launched[i]!)], ["phase", format.words(text(slices.phase[i]!))]);
  return out.filter(([, value]) => value !== "");
}

const placeOf = (i: number): string => `rank ${job.lanes[job.slices.lane[i]!]!.rank}, stream ${job.slices.stream[i]}`;

function tipFor(i: number): (Node | string)[] {
  const kernel = text(job.slices.kernel[i]!);
  return [
    el("div", { class: "tip-title" }, swatch(styleOf(i)), " ", text(job.slices.name[i]!)),
    el("div", { class: "muted" }, placeOf(i)),
    ...linesOf(i).map(([what, value]) => el("div", { class: "row" }, el("span", {}, what), el("b", {}, value))),
    job.slices.critical[i] ? el("div", {}, "The end of the step waited for it.") : "",
    el("div", { class: "muted" }, kernel.length > 90 ? `${kernel.slice(0, 90)}…` : kernel),
  ];
}

function words(): void {
  const target = byId("slice");
  target.dataset.slice = String(chosen);
  if (chosen < 0) fill(target, "Click a slice to keep it here; drag to zoom, Ctrl and the wheel too.");
  else fill(target, el("b", {}, text(job.slices.name[chosen]!)), ` ${[placeOf(chosen), ...linesOf(chosen).map((line) => line.join(" ")), job.slices.critical[chosen] ? "on the critical path" : ""].filter((part) => part).join(" · ")}`);
}

function legend(): void {
  const purposes = [...new Set(job.slices.purpose)].map(text).filter((purpose) => purpose);
  const entry = (mark: HTMLElement, name: string): HTMLElement => el("span", {}, mark, name);
  fill(
    byId("lane-legend"),
    entry(swatch("products"), "matrix products"),
    entry(swatch("other_kernels"), "other kernels and copies"),
    purposes.map((purpose) => entry(swatch(purpose), `${purpose} communication`)),
    entry(el("i", { class: "swatch waits" }), "it waits for other ranks"),
    entry(el("i", { class: "swatch critical" }), "critical path"),
  );
}

// ---- mouse and keyboard --------------------------------------------------------------------------------------------------------------

function sliceUnder(x: number, y: number): number {
  if (x < time.left - 3 || x > time.width - kRight + 3) return -1;
  const row = rows.findIndex((_, r) => y >= rowTop(r) - 1 && y < rowTop(r) + rowHeight());
  return row < 0 ? -1 : sliceAt(time, rows[row]!.slices, time.timeAt(x), endOf);
}

function choose(i: number): void {
  chosen = i;
  const length = time.view[1] - time.view[0], start = i < 0 ? 0 : job.slices.start[i]!;
  if (i >= 0 && (start < time.view[0] || start > time.view[1])) time.show(start - length / 2, start + length / 2);
  else draw();
  words();
}

// Left and right stay in the row; up and down go to what runs there at the time.
function neighbour(key: string): number {
  if (chosen < 0) return rows[0]!.slices.slices[0] ?? -1;
  const row = rowOfSlice[chosen]!, list = rows[row]!.slices.slices, at = list.indexOf(chosen);
  if (key === "ArrowRight") return list[Math.min(list.length - 1, at + 1)]!;
  if (key === "ArrowLeft") return list[Math.max(0, at - 1)]!;
  const other = rows[Math.max(0, Math.min(rows.length - 1, row + (key === "ArrowDown" ? 1 : -1)))]!.slices;
  return other.slices[Math.max(0, upperBound(other.starts, job.slices.start[chosen]!) - 1)]!;
}

function listen(): void {
  time.listen(
    (event) => {
      const i = sliceUnder(event.offsetX, event.offsetY);
      if (i >= 0) showTip(event.clientX, event.clientY, ...tipFor(i));
      else hideTip();
    },
    (event) => choose(sliceUnder(event.offsetX, event.offsetY)),
  );
  time.canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith("Arrow")) choose(neighbour(event.key));
    else if (event.key === "+" || event.key === "=") time.zoom(0.5);
    else if (event.key === "-") time.zoom(2);
    else if (event.key === "0") time.showWhole();
    else if (event.key === "Escape") choose(-1);
    else return;
    event.preventDefault();
  });
  byId("time-in").addEventListener("click", () => time.zoom(0.5));
  byId("time-out").addEventListener("click", () => time.zoom(2));
  byId("time-whole").addEventListener("click", () => time.showWhole());
}

// The middle of a slice, in pixels of the page, for tests.
export function sliceCenter(i: number): { x: number; y: number } {
  const box = time.canvas.getBoundingClientRect();
  return { x: box.left + time.xOf((job.slices.start[i]! + endOf(i)) / 2), y: box.top + rowTop(rowOfSlice[i]!) + barHeight() / 2 };
}

export function initLanes(data: Job): void {
  job = data;
  prepare();
  let begin = 0, end = job.played;
  for (let i = 0; i < job.slices.count; ++i) [begin, end] = [Math.min(begin, job.slices.start[i]!), Math.max(end, endOf(i))];
  time = new TimeView(byId<HTMLCanvasElement>("time"), [begin, Math.max(end, begin + 1)], kLeft, kRight, draw);
  time.canvas.setAttribute("aria-label", `${format.whole(job.slices.count)} operations of ${job.lanes.length} ranks. Arrow keys go from one to the next.`);
  const notes = ["Time 0 is when the last rank has ended the step before. The others have begun theirs by then."];
  if (job.lanes.length < job.times.ranks.length) notes.push("Ranks of one role have the same work; one of each role is shown.");
  fill(byId("lane-note"), notes.join(" "));
  legend();
  words();
  draw();
  listen();
}

export function redrawLanes(): void {
  legend();
  draw();
}
