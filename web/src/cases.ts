// The page of `gpucast sweep`: memory and speed against each argument, what fits, the best rows, each with its run line or capture.
import uPlot from "uplot";
import { fastest, fits, front, kStatuses, linesAlong, speed, speedName, speedText, sweep, timed, valueOf, valuesOf, varying, words, type Row } from "./casedata";
import { byId, chooseTheme, el, fill, hideTip, showTip } from "./dom";
import { bytes, byteTicks, tick, time } from "./format";
import { css } from "./palette";

const kMostLines = 60, kMostRows = 200, kBest = 10;
const kLogFrom = 40; // a range with a larger quotient gets a logarithmic axis
const kMarks: Record<string, string> = { fits: "--good", tight: "--warn", does_not_fit: "--bad" };

let gpu = sweep.gpus[0]!;
let name = varying[0] ?? sweep.names[0] ?? "";
let across = varying[0] ?? "", down = varying[1] ?? "";
let only: string | undefined;
let plots: uPlot[] = [];
const rowsOfCard = (): Row[] => sweep.rows.filter((row) => row.gpu === gpu);
const values = (row: Row): string => sweep.names.filter((one) => row.values[one] !== undefined).map((one) => `${one} ${valueOf(row, one)}`).join("  ");

// ---- charts

interface Axis {
  of: (row: Row) => number | undefined;
  text: (value: number) => string;
  ticks: (most: number) => number[];
  powers: (least: number, most: number) => number[]; // for a logarithmic axis
}
const kMemory: Axis = { of: (row) => row.device_expected_bytes, text: tick, ticks: (most) => byteTicks(most, 7), powers: powersOfTwo };
const kSpeed: Axis = { of: speed, text: speedText, ticks: evenTicks, powers: powersOfTen };

const isWide = (numbers: number[]): boolean => numbers.length > 0 && Math.min(...numbers) > 0 && Math.max(...numbers) / Math.min(...numbers) > kLogFrom;

function evenTicks(most: number): number[] {
  const power = 10 ** Math.floor(Math.log10(most / 6 || 1));
  const step = [1, 2, 5, 10].map((times) => times * power).find((one) => most / one <= 7)!;
  const out = [];
  for (let at = 0; at <= most; at += step) out.push(at);
  return out;
}

function powersOfTen(least: number, most: number): number[] {
  const from = Math.floor(Math.log10(least)), to = Math.ceil(Math.log10(most));
  const out = [];
  for (let power = from; power < to; ++power) out.push(10 ** power, ...(to - from <= 3 ? [2 * 10 ** power, 5 * 10 ** power] : []));
  return [...out, 10 ** to];
}

function powersOfTwo(least: number, most: number): number[] {
  const from = Math.floor(Math.log2(least)), to = Math.ceil(Math.log2(most));
  const by = Math.max(1, Math.ceil((to - from) / 7));
  const out = [];
  for (let power = from; power <= to; power += by) out.push(2 ** power);
  return out;
}

// A scale and its ticks: from 0, or logarithmic where small rows would vanish.
function scaleOf(axis: Axis, numbers: number[]): { scale: uPlot.Scale; splits: (most: number) => number[] } {
  const most = Math.max(...numbers, 0) || 1;
  if (!isWide(numbers)) return { scale: { range: [0, most * 1.08] }, splits: (top) => axis.ticks(top) };
  const ticks = axis.powers(Math.min(...numbers), most);
  return { scale: { distr: 3, range: [ticks[0]!, ticks[ticks.length - 1]!] }, splits: () => ticks };
}

// A circle fits, a ring is tight, a cross does not fit.
function mark(ctx: CanvasRenderingContext2D, status: string, x: number, y: number, size: number): void {
  ctx.strokeStyle = ctx.fillStyle = css(kMarks[status] ?? "--muted");
  ctx.lineWidth = size * 0.45;
  ctx.beginPath();
  if (status === "does_not_fit") {
    ctx.moveTo(x - size, y - size);
    ctx.lineTo(x + size, y + size);
    ctx.moveTo(x - size, y + size);
    ctx.lineTo(x + size, y - size);
  } else ctx.arc(x, y, size, 0, 7);
  if (status === "fits") ctx.fill();
  else ctx.stroke();
}

interface Series {
  rows: (Row | undefined)[]; // one at each x
  line: boolean;
  strong?: boolean;
}

function chart(id: string, xs: number[], series: Series[], y: Axis, x: { range: [number, number]; distr?: 3; splits: () => number[]; text: (value: number) => string }, limit?: number): void {
  const box = byId(id);
  fill(box);
  const numbers = series.flatMap(({ rows }) => rows.map((row) => row && y.of(row)).filter((value): value is number => value !== undefined));
  if (limit !== undefined) numbers.push(limit);
  const { scale, splits } = scaleOf(y, numbers);
  const grid = { stroke: css("--line"), width: 1 }, stroke = css("--muted");
  const filter = (_u: uPlot, all: number[]): number[] => all; // uPlot's own leaves out most of a logarithmic axis
  const size = numbers.length > 300 ? 2 : 3.2;
  const marks = (u: uPlot): void => {
    const ctx = u.ctx, ratio = uPlot.pxRatio;
    ctx.save();
    if (limit !== undefined) {
      const at = u.valToPos(limit, "y", true);
      ctx.strokeStyle = css("--ink");
      ctx.setLineDash([6 * ratio, 4 * ratio]);
      ctx.beginPath();
      ctx.moveTo(u.bbox.left, at);
      ctx.lineTo(u.bbox.left + u.bbox.width, at);
      ctx.stroke();
      ctx.setLineDash([]);
    }
    for (const { rows, strong } of series) {
      if (strong) continue;
      rows.forEach((row, i) => {
        const value = row && y.of(row);
        if (value !== undefined) mark(ctx, row!.status, u.valToPos(xs[i]!, "x", true), u.valToPos(value, "y", true), size * ratio);
      });
    }
    ctx.restore();
  };
  const nearest = (u: uPlot): Row | undefined => {
    const { left = -1, top = -1 } = u.cursor;
    let best: Row | undefined, least = 24 ** 2;
    if (left < 0) return undefined;
    for (const { rows } of series) {
      rows.forEach((row, i) => {
        const value = row && y.of(row);
        if (value === undefined) return;
        const distance = (u.valToPos(xs[i]!, "x") - left) ** 2 + (u.valToPos(value, "y") - top) ** 2;
        if (distance < least) [best, least] = [row, distance];
      });
    }
    return best;
  };
  const tip = (u: uPlot): void => {
    const row = nearest(u);
    if (!row) return hideTip();
    const at = u.over.getBoundingClientRect();
    showTip(at.left + u.cursor.left!, at.top + u.cursor.top!, el("div", { class: "tip-title" }, values(row)), el("div", {}, `${row.gpu}: ${words(row.status)}, ${bytes(row.device_expected_bytes!)}`), row.step_ns !== undefined && el("div", {}, `${time(row.step_ns)} a step${row.samples_per_s ? `, ${speedText(row.samples_per_s)} samples/s` : ""}`));
  };
  plots.push(
    new uPlot(
      {
        width: box.clientWidth,
        height: 280,
        legend: { show: false },
        cursor: { x: false, y: false, points: { show: false }, drag: { x: false, y: false } },
        scales: { x: { time: false, range: x.range, distr: x.distr }, y: scale },
        axes: [
          { stroke, grid, filter, splits: () => x.splits(), values: (_u, all) => all.map(x.text) },
          { stroke, grid, filter, size: 84, splits: (_u, _i, _least, most) => splits(most), values: (_u, all) => all.map(y.text) },
        ],
        series: [{}, ...series.map(({ line, strong }) => ({ stroke: strong ? css("--accent") : css("--reserved"), width: line ? (strong ? 2 : 1) : 0, spanGaps: true, points: { show: false } }))],
        hooks: { draw: [marks], setCursor: [tip] },
      },
      [xs, ...series.map(({ rows }) => rows.map((row) => (row && y.of(row)) ?? null))] as uPlot.AlignedData,
      box,
    ),
  );
}

function drawAgainst(rows: Row[]): void {
  const all = valuesOf(rows, name);
  const places = all.map((_, i) => i);
  let lines = linesAlong(rows, name, all);
  const every = Math.ceil(lines.length / kMostLines);
  byId("lines-note").textContent = `A line joins rows that differ in ${name} alone${every > 1 ? `; one of ${every} lines is drawn` : ""}. Hover for a row's values.`;
  lines = lines.filter((_, i) => i % every === 0);
  const series = lines.map((line) => ({ rows: line, line: true }));
  const label_width = 14 + 7 * Math.max(...all.map((value) => value.length));
  const each = Math.ceil((all.length * label_width) / Math.max(byId("memory").clientWidth - 84, 1));
  const labelled = places.filter((at) => at % each === 0);
  const x = { range: [-0.4, all.length - 0.6] as [number, number], splits: () => labelled, text: (at: number) => all[at] ?? "" };
  const capacity = rows.find((row) => row.capacity_bytes)?.capacity_bytes;
  if (sweep.to_scale) {
    const xs = all.map(Number), most = Math.max(...xs);
    const scaled = { range: [0, most * 1.04] as [number, number], splits: () => evenTicks(most), text: String };
    chart("memory", xs, series, kMemory, scaled, capacity);
    chart("speed", xs, series, kSpeed, scaled);
    return;
  }
  chart("memory", places, series, kMemory, x, capacity);
  chart("speed", places, series, kSpeed, x);
}

function drawFront(rows: Row[]): void {
  const with_both = rows.filter((row) => row.device_expected_bytes !== undefined && speed(row) !== undefined).sort((a, b) => a.device_expected_bytes! - b.device_expected_bytes!);
  byId("front-card").hidden = with_both.length === 0;
  if (with_both.length === 0) return;
  const best = new Set(front(rows));
  const xs = with_both.map((row) => row.device_expected_bytes!);
  const { scale, splits } = scaleOf(kMemory, xs);
  const series = [
    { rows: with_both.map((row) => (best.has(row) ? row : undefined)), line: true, strong: true },
    { rows: with_both as (Row | undefined)[], line: false },
  ];
  chart("front", xs, series, kSpeed, { range: scale.range as [number, number], distr: scale.distr as 3 | undefined, splits: () => splits(Math.max(...xs)).filter((_, i) => i % (byId("front").clientWidth < 600 ? 2 : 1) === 0), text: tick });
}

// ---- tables

function copied(button: HTMLElement, line: string): void {
  void navigator.clipboard?.writeText(line).then(() => (button.textContent = "copied"));
}

const linkOf = (row: Row): HTMLElement =>
  el("span", { class: "links" }, row.capture && el("a", { href: row.capture, title: "the capture: gpucast analyze, time, export" }, "capture"), el("button", { class: "link", title: row.run, onclick: (event: MouseEvent) => copied(event.currentTarget as HTMLElement, row.run) }, "copy run line"));

function tableOf(rows: Row[]): HTMLElement {
  const speed_column = timed ? ["samples/s"] : [];
  const head = [...sweep.names, "result", "memory", "peak reserved", "a step", ...speed_column, ""];
  const isNumber = (i: number): boolean => i > sweep.names.length && i < head.length - 1;
  const cells = (row: Row): (string | HTMLElement)[] => [
    ...sweep.names.map((one) => valueOf(row, one)),
    el("span", { class: `result ${row.status}`, title: row.error ?? "" }, words(row.status), row.error ? `: ${row.error}` : ""),
    row.device_expected_bytes === undefined ? "" : bytes(row.device_expected_bytes),
    row.peak_reserved_bytes === undefined ? "" : bytes(row.peak_reserved_bytes),
    row.step_ns === undefined ? "" : time(row.step_ns),
    ...(timed ? [row.samples_per_s ? speedText(row.samples_per_s) : ""] : []),
    linkOf(row),
  ];
  return el("table", {}, el("thead", {}, el("tr", {}, head.map((title, i) => el("th", { class: isNumber(i) ? "number" : "" }, title)))), el("tbody", {}, rows.map((row) => el("tr", {}, cells(row).map((cell, i) => el("td", { class: isNumber(i) ? "number" : "" }, cell))))));
}

function fillFit(rows: Row[]): void {
  byId("fit-card").hidden = varying.length < 2;
  if (varying.length < 2) return;
  const columns = valuesOf(rows, across), lines = valuesOf(rows, down);
  const cell = (column: string, line: string): HTMLElement => {
    const here = rows.filter((row) => valueOf(row, across) === column && valueOf(row, down) === line && row.status !== "failed");
    const good = here.filter(fits), best = fastest(good)[0];
    if (here.length === 0) return el("td", { class: "cell none" });
    const kind = good.length === here.length ? "all" : good.length > 0 ? "some" : "no";
    const count = here.length === 1 ? words(here[0]!.status) : `${good.length} of ${here.length}`;
    return el("td", { class: `cell ${kind}`, title: best ? `fastest: ${values(best)}` : "" }, el("b", {}, count), best && el("span", { class: "muted" }, `${speedText(speed(best)!)}/s`));
  };
  fill(byId("fit"), el("table", { class: "fit" }, el("thead", {}, el("tr", {}, el("th", {}, `${down} \\ ${across}`), columns.map((column) => el("th", {}, column)))), el("tbody", {}, lines.map((line) => el("tr", {}, el("th", { scope: "row" }, line), columns.map((column) => cell(column, line)))))));
}

function fillRows(rows: Row[]): void {
  const chosen = rows.filter((row) => only === undefined || row.status === only);
  byId("rows-note").textContent = chosen.length > kMostRows ? `the first ${kMostRows} of ${chosen.length.toLocaleString("en-US")}; rows.csv has all` : "";
  fill(byId("table"), tableOf(chosen.slice(0, kMostRows)));
}

function buttons(id: string, choices: string[], chosen: () => string | undefined, choose: (choice: string) => void, label = (choice: string): string => choice): void {
  fill(byId(id), choices.map((choice) => el("button", { "aria-pressed": String(chosen() === choice), onclick: () => (choose(choice), drawAll()) }, label(choice))));
}

function drawAll(): void {
  hideTip();
  for (const plot of plots) plot.destroy();
  plots = [];
  const rows = rowsOfCard();
  buttons("gpus", sweep.gpus, () => gpu, (choice) => (gpu = choice));
  buttons("names", varying, () => name, (choice) => (name = choice));
  const present = kStatuses.filter((status) => rows.some((row) => row.status === status));
  buttons("statuses", present, () => only, (choice) => (only = only === choice ? undefined : choice), (status) => `${words(status)} ${rows.filter((row) => row.status === status).length}`);
  const best = fastest(rows).slice(0, kBest);
  fill(byId("best"), best.length > 0 ? tableOf(best) : el("p", { class: "empty" }, `No row with a known speed fits on ${gpu}.`));
  const capacity = rows.find((row) => row.capacity_bytes)?.capacity_bytes;
  byId("best-note").textContent = capacity === undefined ? gpu : `on ${gpu}, ${bytes(capacity)}`;
  drawAgainst(rows);
  fillFit(rows);
  drawFront(rows);
  fillRows(rows);
}

function chooser(id: string, chosen: string, choose: (value: string) => void): void {
  const select = byId<HTMLSelectElement>(id);
  fill(select, varying.map((one) => el("option", { value: one, selected: one === chosen }, one)));
  select.addEventListener("change", () => (choose(select.value), drawAll()));
}

const count = (status: string): number => sweep.rows.filter((row) => row.status === status).length;
byId("title").textContent = sweep.title;
byId("reason").textContent = `${sweep.rows.length.toLocaleString("en-US")} rows: ${kStatuses.filter(count).map((status) => `${count(status).toLocaleString("en-US")} ${words(status)}`).join(", ")}`;
byId("speed-name").textContent = speedName;
fill(byId("marks"), "● fits   ○ tight   ✕ does not fit   ┄ capacity of the card");
chooser("across", across, (value) => (across = value));
chooser("down", down, (value) => (down = value));
chooseTheme(drawAll);
window.addEventListener("resize", drawAll);
drawAll();
document.documentElement.dataset.ready = "";
