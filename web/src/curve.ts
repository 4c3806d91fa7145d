// Memory over time: allocated, stacked by category, in front of reserved; steps and phases on top; the moment as a line.

import uPlot from "uplot";
import { byId, el, fill, hideTip, showTip } from "./dom";
import * as format from "./format";
import { filteredBytes, filterWords, goTo, isFiltered, kindMask, momentAt, report, setView, sizeOf, stepName, timeline } from "./model";
import { css, fillOf, isDark, stackingOrder } from "./palette";
import { get, on, set } from "./state";
import { categoriesAt, sample, sampleAt, upperBound, type Sample } from "./timeline";

const kBand = 17; // height of a row of steps or phases
const kShort: Record<string, string> = { forward: "fwd", backward: "bwd", optimizer_step: "opt" };

let plot: uPlot | undefined;
let shown: Sample;
let order: number[];
let bandBegins: number[];
let stepStarts: number[];
let stepsInColumn = 0; // 0: columns are equally wide
let bands: { begin: number; end: number; step: number; phase: number }[];

// Spans of one phase and step; modules are ignored.
function findBands(): void {
  const { begin, phase, step, count } = report.span;
  bands = [];
  for (let i = 0; i < count; ++i) {
    const before = bands[bands.length - 1];
    if (before && before.phase === phase[i] && before.step === step[i]) before.end = begin[i + 1]!;
    else bands.push({ begin: begin[i]!, end: begin[i + 1]!, step: step[i]!, phase: phase[i]! });
  }
  bandBegins = bands.map((band) => band.begin);
  stepStarts = report.explained ? bands.filter((band, i) => i > 0 && band.step !== bands[i - 1]!.step).map((band) => band.begin + 1) : [];
}

// Cumulative from the top, so that each area may be filled down to zero: [x, reserved, highest sum, ..., lowest sum, lows, filter].
function data(): uPlot.AlignedData {
  const [from, to] = get().view;
  const columns = Math.max(64, Math.floor(byId("curve").clientWidth));
  stepsInColumn = 0;
  // If steps are only a few pixels wide, each column is a number of whole steps. Other columns would give a moiré pattern.
  const starts = stepStarts.filter((start) => start >= from && start <= to);
  if (starts.length > columns / 4) {
    stepsInColumn = Math.ceil(starts.length / columns);
    const begins = starts.filter((_, i) => i % stepsInColumn === 0);
    shown = sampleAt(timeline, begins[0] === from ? begins : [from, ...begins], to);
  } else {
    shown = sample(timeline, from, to, columns);
  }
  // The last column again, at its end.
  const positions = [...shown.positions, shown.positions[shown.positions.length - 1]!];
  const sums = order.map(() => new Array<number>(positions.length));
  positions.forEach((position, i) => {
    const bytes = categoriesAt(report, timeline, position);
    let sum = 0;
    order.forEach((category, layer) => {
      sums[layer]![i] = sum += bytes[category]!;
    });
  });
  const filter = isFiltered() ? filteredBytes(kindMask()) : null;
  return [
    [...shown.begins, Math.max(to, shown.begins[shown.begins.length - 1]! + 0.5)],
    positions.map((p) => timeline.reserved[p]!),
    ...sums.reverse(),
    shown.everything || stepsInColumn > 0 ? positions.map(() => null) : [...shown.lows, null],
    positions.map((p) => (filter ? filter[p]! : null)),
  ] as uPlot.AlignedData;
}

function yMax(): number {
  const [from, to] = get().view;
  let max = 0;
  for (const p of shown.positions) max = Math.max(max, timeline.reserved[p]!, timeline.allocated[p]!);
  if (from <= report.peakReserved && report.peakReserved <= to) max = Math.max(max, timeline.reserved[report.peakReserved]!);
  return max > 0 ? max * 1.04 : 1;
}

function label(ctx: CanvasRenderingContext2D, text: string, x0: number, x1: number, y: number): void {
  const width = ctx.measureText(text).width;
  if (width + 6 < x1 - x0) ctx.fillText(text, (x0 + x1) / 2, y);
}

function drawBands(u: uPlot): void {
  if (!report.explained) return;
  const { ctx } = u, { left, top, width } = u.bbox, ratio = uPlot.pxRatio;
  const [from, to] = get().view;
  const x = (position: number): number => Math.max(left, Math.min(left + width, u.valToPos(position, "x", true)));
  ctx.save();
  ctx.font = `${11 * ratio}px ${css("--font")}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "center";
  const h = kBand * ratio, phaseTop = top - h, stepTop = top - 2 * h - ratio;
  const tones: Record<string, string> = { forward: css("--band-a"), backward: css("--band-b"), optimizer_step: css("--band-c") };
  let i = Math.max(0, upperBound(bandBegins, from) - 1);
  if (stepsInColumn > 0) {
    const last = bands[Math.max(0, upperBound(bandBegins, to - 1) - 1)]!;
    ctx.fillStyle = css("--step-a");
    ctx.fillRect(left, stepTop, width, 2 * h);
    ctx.fillStyle = css("--muted");
    label(ctx, `steps ${Math.max(1, bands[i]!.step)} to ${Math.min(report.prediction.steps, last.step)}`, left, left + width, stepTop + h);
    ctx.restore();
    return;
  }
  let drawnTo = -1, stepBegin = x(from), step = bands[i]?.step ?? 0;
  const endStep = (at: number): void => {
    if (at - stepBegin >= 1) {
      ctx.fillStyle = step % 2 === 0 ? css("--step-a") : css("--step-b");
      ctx.fillRect(stepBegin, stepTop, at - stepBegin - ratio, h);
      ctx.fillStyle = css("--muted");
      const text = stepName(step);
      const room = at - stepBegin;
      label(ctx, ctx.measureText(text).width + 6 < room ? text : String(step), stepBegin, at, stepTop + h / 2 + ratio / 2);
    }
    stepBegin = at;
  };
  for (; i < bands.length && bands[i]!.begin <= to; ++i) {
    const band = bands[i]!;
    const x0 = x(band.begin), x1 = x(band.end);
    if (band.step !== step) {
      endStep(x0);
      step = band.step;
      // A line through the curve at each step, if steps are wide enough to be seen.
      ctx.fillStyle = css("--step-line");
      if (x0 > left) ctx.fillRect(Math.round(x0), top, Math.max(1, ratio / 2), u.bbox.height);
    }
    if (x1 - drawnTo < 1) continue;
    const name = report.phases[band.phase]!;
    ctx.fillStyle = tones[name] ?? css("--band-d");
    ctx.fillRect(x0, phaseTop, Math.max(1, x1 - x0 - ratio), h - ratio);
    ctx.fillStyle = css("--muted");
    const text = format.words(name);
    label(ctx, ctx.measureText(text).width + 6 < x1 - x0 ? text : kShort[name] ?? "", x0, x1, phaseTop + h / 2 + ratio / 2);
    drawnTo = x1;
  }
  endStep(x(to));
  ctx.restore();
}

function drawMarks(u: uPlot): void {
  const { ctx } = u, { left, top, width, height } = u.bbox, ratio = uPlot.pxRatio;
  const x = (position: number): number => u.valToPos(position, "x", true);
  const inside = (at: number): boolean => at >= left - 1 && at <= left + width + 1;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  const { block, position } = get();
  if (block >= 0) {
    const x0 = Math.max(left - 4, x(report.block.birth[block]!)), x1 = Math.min(left + width + 4, x(Math.min(report.events, report.block.death[block]!)));
    ctx.fillStyle = css("--life");
    ctx.fillRect(x0, top, Math.max(2 * ratio, x1 - x0), height);
    ctx.fillStyle = css("--ink");
    ctx.fillRect(x0, top, 1.5 * ratio, height);
    ctx.fillRect(Math.max(x0, x1 - 1.5 * ratio), top, 1.5 * ratio, height);
    ctx.fillRect(x0, top, Math.max(2 * ratio, x1 - x0), 3 * ratio);
  }
  for (const event of report.oom.event) {
    const at = x(event + 1);
    if (!inside(at)) continue;
    ctx.fillStyle = css("--bad");
    ctx.fillRect(at - ratio, top, 2 * ratio, height);
    ctx.font = `600 ${11 * ratio}px ${css("--font")}`;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    const text = "out of memory", room = ctx.measureText(text).width + 10 * ratio;
    const begin = at > left + width / 2 ? at - room : at;
    ctx.fillRect(begin, top, room, 18 * ratio);
    ctx.fillStyle = css("--card");
    ctx.fillText(text, begin + 5 * ratio, top + 9.5 * ratio);
  }
  ctx.restore();
  const at = x(position);
  if (!inside(at)) return;
  ctx.save();
  ctx.fillStyle = css("--accent");
  ctx.fillRect(at - ratio, top - 2 * ratio, 2 * ratio, height + 2 * ratio);
  ctx.beginPath();
  ctx.moveTo(at - 6 * ratio, top - 6 * ratio);
  ctx.lineTo(at + 6 * ratio, top - 6 * ratio);
  ctx.lineTo(at, top + 3 * ratio);
  ctx.fill();
  ctx.restore();
}

// Positions after round numbers of events, which the moment's name counts.
function eventTicks(min: number, max: number, increment: number): number[] {
  const step = Math.max(1, Math.ceil(increment)), ticks = [];
  for (let event = Math.max(0, Math.ceil((min - 1) / step) * step); event + 1 <= max; event += step) ticks.push(event + 1);
  return ticks;
}

function make(): void {
  plot?.destroy();
  const host = byId("curve");
  order = stackingOrder(report.categories);
  const stepped = uPlot.paths.stepped!({ align: 1 });
  const ink = css("--ink"), muted = css("--muted"), grid = css("--grid");
  const area = (category: number): uPlot.Series => ({
    paths: stepped,
    width: 0,
    points: { show: false },
    fill: (u) => fillOf(u.ctx, report.categories[category]!, false) as unknown as string,
  });
  const values = data();
  plot = new uPlot(
    {
      width: Math.max(200, host.clientWidth),
      height: window.innerWidth < 700 ? 260 : 320,
      padding: [report.explained ? 2 * kBand + 6 : 10, 22, 0, 0],
      legend: { show: false },
      cursor: { points: { show: false }, y: false, drag: { x: true, y: false, setScale: false }, lock: false },
      scales: { x: { time: false, range: () => get().view }, y: { range: () => [0, yMax()] } },
      axes: [
        { stroke: muted, grid: { show: false }, ticks: { stroke: grid, size: 5 }, font: `11px ${css("--font")}`, size: 34, splits: (_u, _axis, min, max, increment) => eventTicks(min, max, increment), values: (_u, splits) => splits.map((position) => format.whole(position - 1)) },
        { stroke: muted, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: `11px ${css("--font")}`, size: 62, splits: (_u, _axis, _min, max) => format.byteTicks(max, 6), values: (_u, splits) => splits.map(format.tick) },
      ],
      series: [
        {},
        { paths: stepped, width: 1.5, stroke: css("--reserved"), fill: css("--free"), points: { show: false } },
        ...[...order].reverse().map(area),
        { paths: stepped, width: 1, stroke: isDark() ? "rgba(0,0,0,.55)" : "rgba(255,255,255,.85)", dash: [2, 2], points: { show: false } },
        { paths: stepped, width: 2.5, stroke: ink, points: { show: false } },
      ],
      hooks: {
        draw: [drawBands, drawMarks],
        setSelect: [
          (u) => {
            if (u.select.width < 4) return;
            setView(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
            u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          },
        ],
      },
    },
    values,
    host,
  );
  listen(plot.over);
}

// The highest moment of the column under the pointer, because the curve shows that one.
function positionUnder(event: { clientX: number }): number {
  const box = plot!.over.getBoundingClientRect();
  const value = plot!.posToVal(event.clientX - box.left, "x");
  const i = Math.max(0, upperBound(shown.begins, value) - 1);
  return shown.positions[i]!;
}

function tipFor(position: number): (Node | string)[] {
  const moment = momentAt(position);
  const where = [moment.phase, moment.step].filter((part) => part !== "").join(", ");
  const line = (name: string, value: number): HTMLElement => el("div", { class: "row" }, el("span", {}, name), el("b", {}, format.bytes(value)));
  const filter = isFiltered() ? filteredBytes(kindMask())[position]! : null;
  return [
    el("div", { class: "tip-title" }, moment.event),
    where ? el("div", { class: "muted" }, where) : "",
    line("allocated", timeline.allocated[position]!),
    line("reserved", timeline.reserved[position]!),
    filter === null ? "" : line(filterWords(), filter),
  ];
}

function zoom(factor: number, center?: number): void {
  const [from, to] = get().view;
  const at = center ?? Math.max(from, Math.min(to, get().position));
  setView(at - (at - from) * factor, at + (to - at) * factor);
}

function listen(over: HTMLElement): void {
  let downAt = 0;
  over.addEventListener("mousedown", (event) => (downAt = event.clientX));
  over.addEventListener("click", (event) => {
    if (Math.abs(event.clientX - downAt) < 4) set({ position: positionUnder(event) });
  });
  over.addEventListener("dblclick", (event) => event.preventDefault());
  over.addEventListener("mousemove", (event) => {
    showTip(event.clientX, event.clientY, ...tipFor(positionUnder(event)));
  });
  over.addEventListener("mouseleave", hideTip);
  over.addEventListener(
    "wheel",
    (event) => {
      // A plain wheel scrolls the page; with Ctrl (and pinching on a touchpad) it zooms, sideways it pans.
      const [from, to] = get().view;
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        const box = over.getBoundingClientRect();
        zoom(Math.exp(event.deltaY * 0.004), plot!.posToVal(event.clientX - box.left, "x"));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
        event.preventDefault();
        const shift = ((event.deltaX || event.deltaY) / over.clientWidth) * (to - from);
        setView(from + shift, to + shift);
      }
    },
    { passive: false },
  );
  // Two fingers zoom and pan.
  let fingers: { view: [number, number]; a: number; b: number } | null = null;
  const at = (touch: Touch): number => (touch.clientX - over.getBoundingClientRect().left) / over.clientWidth;
  over.addEventListener("touchstart", (event) => {
    fingers = event.touches.length === 2 ? { view: get().view, a: at(event.touches[0]!), b: at(event.touches[1]!) } : null;
  });
  over.addEventListener(
    "touchmove",
    (event) => {
      if (!fingers || event.touches.length !== 2) return;
      event.preventDefault();
      const [from, to] = fingers.view, a = at(event.touches[0]!), b = at(event.touches[1]!);
      if (Math.abs(a - b) < 0.02) return;
      // The positions under the two fingers stay there.
      const pa = from + fingers.a * (to - from), pb = from + fingers.b * (to - from);
      const length = (pb - pa) / (b - a);
      if (length > 0) setView(pa - a * length, pa + (1 - a) * length);
    },
    { passive: false },
  );
}

export function zoomBy(factor: number): void {
  zoom(factor);
}

export function pan(share: number): void {
  const [from, to] = get().view;
  setView(from + share * (to - from), to + share * (to - from));
}

// The first position of the next or the previous step.
export function stepTo(direction: 1 | -1): void {
  const now = get().position;
  const starts = [1, ...stepStarts];
  const target = direction > 0 ? starts.find((start) => start > now) : starts.reverse().find((start) => start < now);
  goTo(target ?? (direction > 0 ? report.events : 0));
}

function note(): void {
  const parts: (Node | string)[] = [];
  const [from, to] = get().view;
  if (stepsInColumn > 0) parts.push(`One column is ${stepsInColumn === 1 ? "one step" : `${stepsInColumn} steps`}: its highest moment is drawn. Zoom in to see inside of a step. `);
  else if (!shown.everything) parts.push(`One column is ${format.whole(Math.round((to - from) / shown.begins.length))} events: its highest moment is drawn, the dotted line is its lowest. `);
  if (isFiltered()) parts.push(el("b", {}, "Black line: "), `${filterWords()}. `);
  if (isFiltered() && isDark()) parts[parts.length - 2] = el("b", {}, "White line: ");
  const { block } = get();
  if (block >= 0) parts.push(`Shaded: the life of the selected block (${format.bytes(sizeOf(block))}).`);
  fill(byId("curve-note"), ...parts);
}

function slider(): void {
  const range = byId<HTMLInputElement>("moment-range");
  const [from, to] = get().view;
  range.min = String(from);
  range.max = String(to);
  range.value = String(get().position);
  const moment = momentAt(get().position);
  range.classList.toggle("outside", get().position < from || get().position > to);
  range.setAttribute("aria-valuetext", [moment.event, moment.phase, moment.step].filter((part) => part).join(", "));
}

export function initCurve(): void {
  findBands();
  make();
  note();
  slider();
  on(["theme"], make);
  on(["view", "category", "tree", "search"], () => {
    const values = data();
    plot!.batch(() => {
      plot!.setData(values, false);
      plot!.setScale("x", { min: get().view[0], max: get().view[1] });
      plot!.setScale("y", { min: 0, max: yMax() });
    });
    plot!.redraw(true, true);
  });
  on(["position", "block"], () => plot!.redraw(false, false));
  on(["view", "category", "tree", "search", "block", "theme"], note);
  on(["position", "view"], slider);
  byId("moment-range").addEventListener("input", (event) => set({ position: Number((event.target as HTMLInputElement).value) }));
  let width = byId("curve").clientWidth;
  new ResizeObserver(() => {
    if (byId("curve").clientWidth === width) return;
    width = byId("curve").clientWidth;
    make();
  }).observe(byId("curve"));
}
