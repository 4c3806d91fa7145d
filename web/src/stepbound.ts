// What a step waits for: the GPU, the host or the loader. Shows both paths of a step as bars on one axis, and the effect of other numbers
// of workers. Figures and sentences are the same as in `gpucast time`.

import { type StepTime } from "./data";
import { byId, el, fill } from "./dom";
import * as format from "./format";
import { report } from "./model";
import { background, swatch } from "./palette";
import { on } from "./state";

let time: StepTime;
let end = 0; // of the axis

const capital = (words: string): string => words.charAt(0).toUpperCase() + words.slice(1);
const sentence = (words: string): string => `${capital(words)}${/[.!?]$/.test(words) ? "" : "."}`;
const share = (part: number): string => `${(100 * part).toFixed(0)} %`;
const percentOfAxis = (ns: number): string => `${(100 * ns) / end}%`;

interface Part {
  name: string;
  ns: number;
  fill: string; // a class of style.css, or a name of the palette
}

const kPlain = ["step", "gpu", "host", "loader", "waits"];

// `from`: where the bar begins. `width`: the sum of all its parts.
function bar(parts: Part[], width: number, from = 0): HTMLElement {
  let all = 0;
  for (const part of parts) all += part.ns;
  const strip = el("div", { class: "path-strip" }, ...parts.map((part) => {
    const plain = kPlain.includes(part.fill);
    const piece = el("i", { class: plain ? `path-${part.fill}` : "", title: `${part.name}: ${format.time(part.ns)}` });
    if (!plain) piece.style.background = background(part.fill);
    piece.style.flexGrow = String(all > 0 ? part.ns / all : 0);
    return piece;
  }));
  strip.style.width = percentOfAxis(width);
  strip.style.marginLeft = percentOfAxis(from);
  return strip;
}

function row(id: string, name: string, detail: string, ns: number, ...bars: HTMLElement[]): HTMLElement {
  const bounds = id === time.bound;
  return el(
    "div",
    { class: bounds ? "path-row bounds" : "path-row", "data-path": id, "data-ns": ns },
    el("span", { class: "path-name" }, name, detail ? el("span", { class: "muted" }, detail) : "", bounds ? el("span", { class: "path-mark" }, "bound") : ""),
    el("span", { class: "number" }, format.time(ns)),
    el("div", { class: "path-track", "aria-hidden": "true" }, ...bars),
  );
}

function paths(): void {
  const { step, loader, gpu_ns, host_ns } = time;
  // Without workers the program makes its batches itself, one after the other.
  const fedFrom = loader?.workers === 0 ? host_ns : 0;
  end = 1.02 * Math.max(step.high_ns, gpu_ns, host_ns, loader ? fedFrom + loader.fed_ns : 0, 1);
  const waits = loader && loader.wait_share >= 0.005 ? loader.wait_share * step.expected_ns : 0;
  const range = el("div", { class: "path-range", title: `90 % within ${format.time(step.low_ns)} to ${format.time(step.high_ns)}` });
  range.style.left = percentOfAxis(step.low_ns);
  range.style.width = percentOfAxis(step.high_ns - step.low_ns);
  const works: Part[] = [{ name: "a step", ns: step.expected_ns - waits, fill: "step" }];
  if (waits > 0) works.push({ name: "waits for the loader", ns: waits, fill: "waits" });
  const rows = [
    row("step", "A step", waits > 0 ? `waits ${share(loader!.wait_share)}` : "", step.expected_ns, bar(works, step.expected_ns), range),
    row("gpu", "GPU", "", gpu_ns, bar([{ name: "the GPU works", ns: gpu_ns, fill: "gpu" }], gpu_ns)),
    row("host", "Host", "the program", host_ns, bar([{ name: "the host works", ns: host_ns, fill: "host" }], host_ns)),
  ];
  if (loader) {
    const parts = loader.stages.length > 0 ? loader.stages.map(({ name, ns }) => ({ name: `${name}, of a batch in one process`, ns, fill: name })) : [{ name: "a batch", ns: loader.fed_ns, fill: "loader" }];
    const how = loader.workers === 0 ? "in the program itself" : `${loader.workers} worker${loader.workers === 1 ? "" : "s"}`;
    rows.push(row("loader", "Loader", loader.batches > 1 ? `${how}, ${loader.batches} batches` : how, loader.fed_ns, bar(parts, loader.fed_ns, fedFrom)));
  }
  fill(byId("paths"), ...rows);
  const ticks = format.timeTicks(0, end, byId("paths").clientWidth / 60 || 6);
  fill(byId("path-axis"), ...ticks.map((at) => {
    const tick = el("span", { class: at > 0.95 * end ? "last" : "" }, format.timeTick(at));
    tick.style.left = percentOfAxis(at);
    return tick;
  }));
  byId("paths").style.setProperty("--tick", percentOfAxis(ticks[1] ?? end));
  const legend = (mark: HTMLElement, words: string): HTMLElement => el("span", {}, mark, words);
  const plain = (name: string): HTMLElement => el("i", { class: `swatch path-${name}`, "aria-hidden": "true" });
  fill(
    byId("path-legend"),
    waits > 0 ? legend(plain("waits"), "waits for the loader") : null,
    ...(loader?.stages ?? []).map(({ name }) => legend(swatch(name), name)),
    legend(el("i", { class: "range-mark", "aria-hidden": "true" }), "9 of 10 steps"),
  );
}

function workers(): void {
  const { loader } = time;
  if (!loader) return;
  byId("workers").hidden = false;
  const heads = ["workers", "a batch every", "90 % within", "a step", "it waits", "bound"];
  const number = (text: string, column = ""): HTMLElement => el("td", { class: `number ${column}` }, text);
  fill(
    byId("workers"),
    el(
      "table",
      {},
      el("caption", {}, "With other numbers of workers"),
      el("thead", {}, el("tr", {}, ...heads.map((head, i) => el("th", { scope: "col", class: i === 5 ? "" : i === 2 ? "number within" : "number" }, head)))),
      el("tbody", {}, ...loader.choices.map(({ workers: count, batch, step, wait_share, bound }) => {
        const own = count === loader.workers;
        return el(
          "tr",
          { class: own ? "own" : "", "data-workers": count, "aria-current": own ? "true" : undefined },
          el("th", { scope: "row", class: "number" }, own ? el("span", { class: "own-mark", title: "the script's own number" }, el("span", {}, "yours "), "▸ ") : "", count),
          number(format.time(batch.expected_ns)),
          number(format.timeRange(batch.low_ns, batch.high_ns, batch.expected_ns), "within"),
          number(format.time(step.expected_ns)),
          number(share(wait_share)),
          el("td", {}, bound),
        );
      })),
    ),
    el("p", { class: "advice" }, sentence(loader.advice)),
  );
}

export function initStepBound(): void {
  if (!report.work) return;
  time = report.work.time;
  const card = byId("step-card"), { gpu } = report.prediction;
  card.hidden = false;
  card.parentElement!.classList.add("timed");
  const { step } = time, title = byId("step-title");
  title.dataset.ns = String(step.expected_ns);
  fill(title, `A step takes ${format.time(step.expected_ns)} on ${gpu.full_name || gpu.name}`);
  const [bound, ...rest] = time.bound_words.split(":");
  fill(byId("step-bound"), el("b", {}, capital(bound!)), `:${rest.join(":")}. `, el("span", { class: "muted" }, sentence(time.interval_words)));
  fill(byId("step-notes"), ...[...time.loader_words, ...time.notes].map((words) => el("p", {}, sentence(words))));
  paths();
  workers();
  on(["theme"], paths);
  let width = 0;
  new ResizeObserver(([entry]) => {
    if (Math.floor(entry!.contentRect.width) === width) return;
    width = Math.floor(entry!.contentRect.width);
    paths();
  }).observe(byId("paths"));
}
