// The page of a job's step: what it waits for, and its ranks on one clock.

import { byId, el, fill } from "./dom";
import * as format from "./format";
import { ranksOfRole, readJob, type Job, type Rank, type Times } from "./jobdata";
import { initLanes, redrawLanes, sliceCenter } from "./joblanes";
import { background, swatch } from "./palette";

const kMostRows = 64;

// The parts of a rank's step. Their sum is the step; hidden communication takes no time of its own.
const kParts: [string, string, (rank: Rank) => number][] = [
  ["compute", "compute", (rank) => rank.compute_ns],
  ["exposed", "exposed communication", (rank) => rank.communication.exposed_ns],
  ["waiting", "waits for ranks", (rank) => rank.bubble_ns],
  ["host", "host too late", (rank) => rank.idle_ns],
];

function table(head: string[], rows: (Node | string)[][], texts = 1): HTMLElement {
  const cell = (content: Node | string, i: number): HTMLElement => (i < texts ? el("th", { scope: "row" }, content) : el("td", { class: "number" }, content));
  return el("table", {}, el("thead", {}, el("tr", {}, head.map((name, i) => el("th", { class: i < texts ? "" : "number" }, name)))), el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell)))));
}

const withShare = (ns: number, all: number): HTMLElement => el("span", { "data-ns": ns }, format.time(ns), el("span", { class: "share" }, ` ${format.percent(ns, all)}`));

function header({ times, machine, bound, interval }: Job): void {
  const { job } = times, busiest = times.ranks.find((rank) => rank.rank === job.busiest_rank)!;
  fill(byId("title"), `${format.time(times.step.expected_ns)} a step of ${job.ranks} ranks on ${job.nodes > 1 ? `${job.nodes} x ` : ""}${machine} (${times.gpu})`);
  fill(byId("bound"), `${interval}. ${bound}.`);
  fill(byId("command"), times.command.join(" "));
  const tile = (name: string, value: string, note: string): HTMLElement => el("div", { class: "tile" }, el("div", { class: "tile-name" }, name), el("div", { class: "tile-value" }, value), el("div", { class: "tile-note", title: note }, note));
  const perSecond = times.tokens_per_s > 0 ? tile("Tokens/s", format.whole(Math.round(times.tokens_per_s)), "all ranks together") : times.samples_per_s > 0 ? tile("Samples/s", format.whole(+times.samples_per_s.toPrecision(4)), "all ranks together") : null;
  const part = (name: string, ns: number): HTMLElement => tile(name, format.percent(ns, busiest.step_ns), `of rank ${busiest.rank}, which waits least`);
  fill(
    byId("tiles"),
    perSecond,
    tile("Replicas", String(job.replicas), job.replicas === job.ranks ? "each on one card" : `each on ${job.ranks / job.replicas} cards`),
    part("Exposed communication", busiest.communication.exposed_ns),
    part("Waits for ranks", busiest.bubble_ns),
    tile("Model FLOPs utilisation", format.percent(times.model_flops_utilisation, 1), "of the datasheet's rate"),
  );
  fill(byId("notes"), job.notes.map((note) => el("p", {}, note)));
}

function stack(rank: Rank): HTMLElement {
  const strip = el("div", { class: "path-strip part-strip", "aria-hidden": "true" });
  for (const [style, , of] of kParts) {
    const piece = el("i", {});
    piece.style.flexGrow = String(of(rank));
    piece.style.background = background(style);
    strip.append(piece);
  }
  return strip;
}

function parts({ times, lanes }: Job): void {
  const heads = kParts.map(([style, name]) => el("span", { class: "part-name" }, swatch(style), name));
  const rows = lanes.slice(0, kMostRows).map((rank) => [
    el("span", { title: ranksOfRole(times, rank.role) }, rank.rank === times.job.busiest_rank ? `rank ${rank.rank}, waits least` : `rank ${rank.rank}`),
    ranksOfRole(times, rank.role),
    stack(rank),
    format.time(rank.step_ns),
    ...kParts.map(([, , of]) => withShare(of(rank), rank.step_ns)),
    withShare(rank.communication.hidden_ns, rank.step_ns),
  ]);
  const out = table(["shown", "captured ranks of this role", "", "step", ...kParts.map(() => ""), "hidden communication"], rows, 3);
  out.querySelectorAll("thead th").forEach((cell, i) => {
    if (i >= 4 && i < 4 + heads.length) fill(cell, heads[i - 4]!);
  });
  fill(byId("parts"), out);
}

function path({ times, played }: Job): void {
  const whats = [...new Set(times.job.critical_path.map((part) => part.what))];
  const ranks = [...new Set(times.job.critical_path.map((part) => part.rank))].sort((a, b) => a - b);
  const ns = (rank: number | null, what: string | null): number => times.job.critical_path.filter((part) => (rank === null || part.rank === rank) && (what === null || part.what === what)).reduce((sum, part) => sum + part.ns, 0);
  const cell = (of: number): Node | string => (of > 0 ? withShare(of, played) : "");
  const rows: (Node | string)[][] = ranks.slice(0, kMostRows).map((rank) => [`rank ${rank}`, ...whats.map((what) => cell(ns(rank, what))), cell(ns(rank, null))]);
  if (ranks.length > 1) rows.push(["all", ...whats.map((what) => cell(ns(null, what))), cell(ns(null, null))]);
  fill(byId("path"), table(["", ...whats.map((what) => (what === "host" ? "host too late" : what === "compute" ? what : `${what} communication`)), "together"], rows));
}

function communication({ lanes, times }: Job): void {
  const rows = lanes.slice(0, kMostRows).flatMap((rank) =>
    rank.by_communication.map((part) => [
      `rank ${rank.rank}`,
      el("span", { class: "part-name" }, swatch(part.purpose), `${part.purpose}: ${part.kind} of ${part.ranks}${part.nodes > 1 ? ` on ${part.nodes} nodes` : ""}`),
      format.whole(part.calls),
      `${(part.bytes / 1e6).toFixed(1)} MB`,
      withShare(part.exposed_ns, rank.step_ns),
      withShare(part.bubble_ns, rank.step_ns),
      withShare(part.hidden_ns, rank.step_ns),
    ]),
  );
  if (rows.length === 0) fill(byId("communication"), `No rank sends anything in a step of ${times.job.ranks} ranks.`);
  else fill(byId("communication"), table(["shown", "", "calls", "size", "exposed", "waits for ranks", "hidden"], rows, 2));
}

function drawAll(job: Job): void {
  parts(job);
  path(job);
  communication(job);
}

async function start(): Promise<void> {
  const root = document.documentElement;
  root.dataset.theme = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const job = await readJob(JSON.parse(byId("times").textContent!) as Times, byId("data").textContent!.trim());
  header(job);
  initLanes(job);
  drawAll(job);
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    redrawLanes();
    drawAll(job);
  });
  // For tests, and for questions from the browser's console.
  Object.assign(window, { gpucast: { job, sliceCenter } });
  root.dataset.ready = "true";
}

start().catch((error: unknown) => {
  fill(byId("title"), `The page cannot be shown: ${error instanceof Error ? error.message : String(error)}`);
  throw error;
});
