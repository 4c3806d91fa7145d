// The page of a sweep: occupancy, utilisation, speed and memory against the values of one argument.
import uPlot from "uplot";
import { byId, chooseTheme, el, fill } from "./dom";
import { byteTicks, bytes, percent, tick, time } from "./format";
import { color, css } from "./palette";

interface Row {
  value: string;
  verdict: string;
  problem?: string;
  expected_bytes?: number;
  step_ns?: number;
  samples_per_s?: number;
  occupancy?: { time_weighted: number; mean_of_kernels: number; of_step: number };
  nvml_utilization?: number;
  sm_active?: number;
}
interface Sweep {
  name: string;
  gpu: string;
  gpu_name: string;
  capacity_bytes: number;
  command: string[];
  knee: string | null;
  knee_reason: string;
  sweep: Row[];
}

const sweep = JSON.parse(byId("sweep").textContent ?? "{}") as Sweep;
const rows = sweep.sweep;
const places = rows.map((_, i) => i);
const knee = rows.findIndex((row) => row.value === sweep.knee);
const share = (value: number | undefined): string => (value === undefined ? "" : percent(value, 1));

interface Curve {
  label: string;
  like: string; // the category whose colour it has
  scale: string;
  dash?: number[];
  values: (number | undefined)[];
}

let plots: uPlot[] = [];

function draw(id: string, curves: Curve[], axes: { scale: string; text: (value: number) => string; ticks?: (most: number) => number[]; side?: number; range?: [number, number] }[]): void {
  const box = byId(id);
  fill(box);
  const grid = { stroke: css("--line"), width: 1 };
  const stroke = css("--muted");
  plots.push(
    new uPlot(
      {
        width: box.clientWidth,
        height: 280,
        scales: {
          x: { time: false, range: [-0.3, rows.length - 0.7] },
          ...Object.fromEntries(axes.map(({ scale, range }) => [scale, { range: range ?? ((_: uPlot, __: number, most: number): [number, number] => [0, (most || 1) * 1.1]) }])),
        },
        axes: [
          { stroke, grid, splits: () => places, values: (_, splits) => splits.map((at) => rows[at]?.value ?? "") },
          ...axes.map(({ scale, text, ticks, side }) => ({ scale, side: side ?? 3, stroke, grid: side === 1 ? { show: false } : grid, size: 84, ...(ticks && { splits: (_: uPlot, __: number, ___: number, most: number) => ticks(most) }), values: (_: uPlot, splits: number[]) => splits.map(text) })),
        ],
        series: [
          { label: sweep.name, value: (_, at) => (at === null ? "" : (rows[at]?.value ?? "")) },
          ...curves.map(({ label, like, scale, dash }) => ({ label, scale, stroke: color(like), width: 2, dash, points: { show: true, size: 6 }, value: (_: uPlot, value: number | null) => (value === null ? "" : axes.find((axis) => axis.scale === scale)!.text(value)) })),
        ],
        hooks: {
          drawClear: [
            (u) => {
              if (knee < 0) return;
              const x = u.valToPos(knee, "x", true);
              u.ctx.save();
              u.ctx.strokeStyle = css("--muted");
              u.ctx.fillStyle = css("--muted");
              u.ctx.setLineDash([4, 4]);
              u.ctx.beginPath();
              u.ctx.moveTo(x, u.bbox.top);
              u.ctx.lineTo(x, u.bbox.top + u.bbox.height);
              u.ctx.stroke();
              u.ctx.fillText("knee", x + 5, u.bbox.top + 12 * uPlot.pxRatio);
              u.ctx.restore();
            },
          ],
        },
      },
      [places, ...curves.map(({ values }) => values.map((value) => value ?? null))] as uPlot.AlignedData,
      box,
    ),
  );
}

function drawAll(): void {
  for (const plot of plots) plot.destroy();
  plots = [];
  draw(
    "shares",
    [
      { label: "GPU utilisation (nvidia-smi)", like: "copy", scale: "share", values: rows.map((row) => row.nvml_utilization) },
      { label: "SM active", like: "normalization", scale: "share", values: rows.map((row) => row.sm_active) },
      { label: "occupancy, by time", like: "gemm", scale: "share", values: rows.map((row) => row.occupancy?.time_weighted) },
      { label: "occupancy, mean of kernels", like: "convolution", scale: "share", dash: [6, 4], values: rows.map((row) => row.occupancy?.mean_of_kernels) },
    ],
    [{ scale: "share", text: (value) => `${(100 * value).toFixed(0)} %`, range: [0, 1] }],
  );
  draw(
    "speed",
    [
      { label: "samples a second", like: "gemm", scale: "speed", values: rows.map((row) => row.samples_per_s) },
      { label: "memory of the card", like: "optimizer_state", scale: "memory", dash: [6, 4], values: rows.map((row) => row.expected_bytes) },
    ],
    [
      { scale: "speed", text: (value) => `${+value.toPrecision(4)}/s` },
      { scale: "memory", text: tick, ticks: (most) => byteTicks(most, 8), side: 1 },
    ],
  );
}

byId("title").textContent = `${sweep.name} on ${sweep.gpu} (${sweep.gpu_name}, ${bytes(sweep.capacity_bytes)})`;
byId("reason").textContent = sweep.knee_reason;
byId("command").textContent = sweep.command.join(" ");
fill(
  byId("table"),
  el(
    "table",
    {},
    el("thead", {}, el("tr", {}, [sweep.name, "verdict", "memory", "a step", "samples/s", "occupancy", "mean of kernels", "nvidia-smi", "SM active"].map((name, i) => el("th", { class: i > 1 ? "number" : "" }, name)))),
    el(
      "tbody",
      {},
      rows.map((row) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, row.value, row.value === sweep.knee ? " (knee)" : ""),
          el("td", {}, row.problem ?? row.verdict.replaceAll("_", " ")),
          [
            row.expected_bytes === undefined ? "" : bytes(row.expected_bytes),
            row.step_ns === undefined ? "" : time(row.step_ns),
            row.samples_per_s ? +row.samples_per_s.toPrecision(4) : "",
            share(row.occupancy?.time_weighted),
            share(row.occupancy?.mean_of_kernels),
            share(row.nvml_utilization),
            share(row.sm_active),
          ].map((text) => el("td", { class: "number" }, text)),
        ),
      ),
    ),
  ),
);
chooseTheme(drawAll);
window.addEventListener("resize", drawAll);
drawAll();
