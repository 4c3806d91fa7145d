// The parts of the page without drawings: verdict and totals, the moment, the selected block, the ledger, the run.

import { stackOf, type Prediction } from "./data";
import { byId, el, fill } from "./dom";
import * as format from "./format";
import { categories, categoryOf, goTo, momentAt, moduleOf, nameOf, operatorOf, phaseOf, report, sizeOf, stepName, tensorOf, timeline } from "./model";
import { background, stackingOrder, swatch } from "./palette";
import { get, on, set } from "./state";

// ---- verdict and totals ----------------------------------------------------------------------------------------------------------

interface Line {
  name: string;
  bytes: number;
  category?: string; // of the palette, or "free", "ledger"
}

// Device memory, line by line: they add up to device.expected_bytes.
export function deviceLines(p: Prediction): Line[] {
  const categoryLines = stackingOrder(p.categories.map((line) => line.name)).map((i) => p.categories[i]!).filter((line) => line.bytes > 0);
  const lines: Line[] = categoryLines.map((line) => ({ name: format.words(line.name), bytes: line.bytes, category: line.name }));
  const free = p.peak.free_but_reserved_bytes;
  if (free > 0) lines.push({ name: "free, but reserved", bytes: free, category: "free" });
  const later = p.peak.reserved_bytes - p.peak.allocated_at.reserved_bytes;
  if (later > 0) lines.push({ name: "reserved at another moment", bytes: later, category: "free" });
  for (const line of p.ledger) lines.push({ name: line.library ? `${line.library}: ${line.what}` : line.what, bytes: line.expected_bytes, category: "ledger" });
  return lines;
}

const kVerdicts = { fits: ["Fits", "✓"], tight: ["Tight", "!"], does_not_fit: ["Does not fit", "✕"], grows: ["Grows", "↗"], none: ["No verdict", "?"] } as const;

export function quoted(words: string[]): string {
  return words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}

function where(place: { event: number; phase: string; step: number; module: string }): string {
  if (!place.phase) return `event ${format.whole(place.event)}`;
  return [format.words(place.phase), place.step > 0 ? `step ${place.step}` : "", place.module].filter((part) => part).join(", ");
}

function sourceWords(p: Prediction): string {
  const steps = `${p.steps} optimizer step${p.steps === 1 ? "" : "s"}`;
  if (p.source === "snapshot") return `memory snapshot, ${format.whole(p.counts.allocator_events)} allocator events`;
  return p.source === "cpu_profile" ? `profiler trace, ${steps}` : `virtual GPU, ${steps}`;
}

export function initHeader(p: Prediction): void {
  const [word, mark] = kVerdicts[p.verdict];
  document.title = `${word}: ${quoted(p.command) || "GPU memory"} · gpucast`;
  const pill = byId("verdict");
  pill.className = `pill ${p.verdict}`;
  fill(pill, el("span", { "aria-hidden": "true" }, mark), word);
  fill(byId("card-name"), `on ${p.gpu.full_name || p.gpu.name}, ${format.bytes(p.gpu.capacity_bytes)}`);
  fill(byId("reason"), p.verdict_reason ? p.verdict_reason.charAt(0).toUpperCase() + p.verdict_reason.slice(1) : "");
  const command = quoted(p.command);
  fill(byId("command"), command);
  byId("command").hidden = command === "";
  byId("command").title = command;
  const rank = p.environment.world_size > 1 ? `, rank ${p.environment.rank} of ${p.environment.world_size}` : "";
  fill(byId("source"), `${sourceWords(p)}${p.environment.torch ? `, torch ${p.environment.torch}` : ""}${rank}`);

  const tile = (name: string, value: number, note: string, id: string, onclick?: () => void): HTMLElement =>
    el("div", { class: "tile" }, el("div", { class: "tile-name" }, name), el("div", { class: "tile-value", id, title: format.exact(value), "data-bytes": value }, format.bytes(value)), onclick ? el("button", { class: "link tile-note", title: note, onclick }, note) : el("div", { class: "tile-note", title: note }, note));
  fill(
    byId("tiles"),
    tile("Device memory", p.device.expected_bytes, `${format.bytes(p.device.low_bytes)} to ${format.bytes(p.device.high_bytes)}`, "total-device"),
    tile("What to ask for", p.device.request_bytes, `so that ${+(100 * p.device.confidence).toFixed(4)} % of such jobs run`, "total-request"),
    tile("Reserved at its peak", p.peak.reserved_bytes, where(p.peak.reserved_at), "total-reserved", () => goTo(report.peakReserved)),
    tile("Allocated at its peak", p.peak.allocated_bytes, where(p.peak.allocated_at), "total-allocated", () => goTo(report.peak)),
    p.min_capacity_bytes === null ? null : tile("Smallest card it runs on", p.min_capacity_bytes, "PyTorch giving cached memory back", "total-least"),
  );
  bar(p);
  on(["theme"], () => bar(p));
}

function bar(p: Prediction): void {
  const lines = deviceLines(p).filter((line) => line.bytes > 0);
  const used = p.device.expected_bytes;
  // Memory that did not fit is drawn after the memory that did.
  const failed = p.oom?.ended_run ? p.oom.requested_bytes : 0;
  const all = Math.max(p.gpu.capacity_bytes, used + failed);
  const parts = lines.map((line) => {
    const part = el("i", { class: line.category === "free" || line.category === "ledger" ? line.category : "", title: `${line.name}: ${format.bytes(line.bytes)}` });
    if (line.category !== "free" && line.category !== "ledger") part.style.background = background(line.category!);
    part.style.flexGrow = String(line.bytes / all);
    return part;
  });
  if (failed > 0) {
    const part = el("i", { class: "failed", title: `the request that failed: ${format.bytes(failed)}` });
    part.style.flexGrow = String(failed / all);
    parts.push(part);
  }
  const rest = el("i", { class: "rest" });
  rest.style.flexGrow = String(Math.max(0, all - used - failed) / all);
  const barElement = byId("capacity");
  fill(barElement, ...parts, rest);
  if (all > p.gpu.capacity_bytes) {
    const limit = el("span", { class: "limit", title: `the card ends here: ${format.bytes(p.gpu.capacity_bytes)}` });
    limit.style.left = `${(100 * p.gpu.capacity_bytes) / all}%`;
    barElement.append(limit);
  }
  barElement.setAttribute("aria-label", `${format.bytes(used)} of the card's ${format.bytes(p.gpu.capacity_bytes)}`);
  fill(
    byId("capacity-note"),
    el("span", {}, `${format.bytes(used)} expected${failed > 0 ? `, ${format.bytes(failed)} more asked for when it failed` : ""}`),
    el("span", {}, failed > 0 ? `the card has ${format.bytes(p.gpu.capacity_bytes)}` : used > p.gpu.capacity_bytes ? `${format.bytes(used - p.gpu.capacity_bytes)} over the card's ${format.bytes(p.gpu.capacity_bytes)}` : `${format.bytes(p.gpu.capacity_bytes - used)} left of ${format.bytes(p.gpu.capacity_bytes)}`),
  );
}

// ---- the moment, which is also the legend and the filter by category ----------------------------------------------------------------------

function moment(): void {
  const { position, category: chosen } = get();
  const now = momentAt(position);
  const bytes = categories(position);
  const allocated = timeline.allocated[position]!, reserved = timeline.reserved[position]!;
  const place = [now.phase, now.step].filter((part) => part !== "").join(", ");
  fill(byId("moment-name"), position === report.peak ? "At the peak" : "At this moment");
  fill(byId("moment-place"), el("b", {}, now.event), place ? `, ${place}` : "", now.module ? el("span", { class: "moment-module", title: now.module }, now.module) : "");
  const rows = stackingOrder(report.categories)
    .filter((c) => bytes[c]! > 0 || report.prediction.categories.some((line) => line.name === report.categories[c] && line.bytes > 0) || c === chosen)
    .reverse()
    .map((c) => {
      const name = report.categories[c]!;
      return el(
        "button",
        { class: "legend-row", "aria-pressed": String(chosen === c), "data-category": name, "data-bytes": bytes[c]!, title: `${format.exact(bytes[c]!)}: show only ${format.words(name)}`, onclick: () => set({ category: chosen === c ? -1 : c }) },
        swatch(name),
        el("span", { class: "legend-name" }, format.words(name)),
        el("span", { class: "number" }, format.mib(bytes[c]!)),
        el("span", { class: "number share" }, format.percent(bytes[c]!, allocated)),
      );
    });
  const sum = (name: string, value: number, id: string, sign?: HTMLElement): HTMLElement =>
    el("div", { class: "legend-row sum", id, "data-bytes": value, title: format.exact(value) }, sign ?? el("i", {}), el("span", { class: "legend-name" }, name), el("span", { class: "number" }, format.mib(value)), el("span", { class: "share" }));
  fill(byId("legend"), ...rows, sum("allocated", allocated, "now-allocated"), sum("free, but reserved", reserved - allocated, "now-free", swatch("free")), sum("reserved", reserved, "now-reserved"));
}

// A library's path inside its package; the full path is in the title.
const shortPath = (file: string): string => file.replace(/^.*\/(?:site|dist)-packages\//, "");

// ---- the selected block ------------------------------------------------------------------------------------------------------------

function selection(): void {
  const { block } = get();
  const panel = byId("details");
  panel.dataset.block = String(block);
  if (block < 0) {
    fill(panel, el("h2", {}, "Block"), el("p", { class: "empty" }, "Click a block in the segment map or a row of the table: its stack, its module and its life in the curve show up here."));
    return;
  }
  const kind = report.block.kind[block]!, { birth, death } = report.block;
  const category = categoryOf(block);
  const never = death[block] === report.never;
  const here = get().position >= birth[block]! && get().position < death[block]!;
  const item = (name: string, ...value: (Node | string | null)[]): HTMLElement[] => [el("dt", {}, name), el("dd", {}, ...value)];
  const link = (text: string, position: number, title: string): HTMLElement => el("button", { class: "link", title, onclick: () => goTo(position) }, text);
  const size = sizeOf(block), rounding = size - report.kind.requested[kind]!;
  const stack = stackOf(report, report.kind.stack[kind]!);
  const own = stack.findIndex((frame) => !frame.library);
  fill(
    panel,
    el("h2", {}, "Block", el("button", { class: "icon", title: "Clear the selection (Esc)", "aria-label": "Clear the selection", onclick: () => set({ block: -1 }) }, "✕")),
    el("div", { class: "block-name", title: nameOf(block) }, nameOf(block)),
    el("div", { class: "block-size" }, swatch(category), el("b", { title: format.exact(size) }, format.bytes(size)), ` ${format.words(category)}`),
    here ? null : el("p", { class: "hint" }, "Not allocated at this moment. ", link("Go to where it is born", birth[block]!, "")),
    el(
      "dl",
      {},
      ...(rounding > 0 ? item("requested", `${format.bytes(report.kind.requested[kind]!)}, the rest is rounding`) : []),
      ...(tensorOf(kind) ? item("tensor", tensorOf(kind)) : []),
      ...(report.kind.module[kind]! >= 0 ? item("module", moduleOf(kind)) : []),
      ...(operatorOf(kind) ? item("operator", operatorOf(kind)) : []),
      ...(report.explained ? item("allocated in", `${format.words(phaseOf(kind))}, ${stepName(report.block.step[block]!)}`) : []),
      ...item("born", birth[block] === 0 ? "before the history begins" : link(`event ${format.whole(birth[block]! - 1)}`, birth[block]!, "Go to this moment")),
      ...item("freed", never ? "not in this history" : link(`event ${format.whole(death[block]! - 1)}`, death[block]!, "Go to this moment"), never ? null : `, after ${format.whole(death[block]! - birth[block]!)} event${death[block]! - birth[block]! === 1 ? "" : "s"}`),
      ...item("address", el("code", {}, format.address(report.block.address[block]!)), report.kind.stream[kind] ? `, stream ${format.address(report.kind.stream[kind]!)}` : ""),
    ),
    el("h3", {}, "Python stack"),
    stack.length === 0
      ? el("p", { class: "empty" }, "No stack was recorded for this block.")
      : el(
          "ol",
          { class: "stack", id: "stack" },
          ...stack.map((frame, i) =>
            el("li", { class: `${frame.library ? "library" : "own"}${i === own ? " first" : ""}`, title: `${frame.file}:${frame.line}` }, el("b", {}, frame.name), el("span", {}, `${shortPath(frame.file)}:${frame.line}`)),
          ),
        ),
  );
}

// ---- ledger and run ------------------------------------------------------------------------------------------------------------------

function ledger(p: Prediction): void {
  const lines = deviceLines(p);
  const allocated = p.categories.filter((line) => line.bytes > 0).length;
  const most = Math.max(...lines.map((line) => line.bytes), 1);
  const row = (line: Line, note?: string): HTMLElement => {
    const mark = line.category === "ledger" ? el("i", { class: "swatch ledger", "aria-hidden": "true" }) : swatch(line.category!);
    const strip = el("i", { class: `strip ${line.category === "ledger" || line.category === "free" ? line.category : ""}` });
    strip.style.width = `${(100 * line.bytes) / most}%`;
    if (line.category !== "ledger" && line.category !== "free") strip.style.background = background(line.category!);
    return el("tr", { "data-bytes": line.bytes }, el("th", { scope: "row" }, mark, line.name, note ? el("div", { class: "muted source" }, note) : null), el("td", { class: "number", title: format.exact(line.bytes) }, format.mib(line.bytes)), el("td", { class: "strip-cell", "aria-hidden": "true" }, strip));
  };
  const sum = (name: string, value: number, note = ""): HTMLElement =>
    el("tr", { class: "sum", "data-bytes": value }, el("th", { scope: "row" }, name), el("td", { class: "number", title: format.exact(value) }, format.mib(value)), el("td", { class: "muted note" }, note));
  const ofLedger = (line: Line): string | undefined => p.ledger.find((entry) => (entry.library ? `${entry.library}: ${entry.what}` : entry.what) === line.name)?.source;
  const body = el("tbody", {});
  body.append(...lines.slice(0, allocated).map((line) => row(line)));
  body.append(sum("= allocated at its peak", p.peak.allocated_bytes, where(p.peak.allocated_at)));
  body.append(...lines.slice(allocated).filter((line) => line.category === "free").map((line) => row(line)));
  body.append(sum("= reserved at its peak", p.peak.reserved_bytes, where(p.peak.reserved_at)));
  body.append(...lines.slice(allocated).filter((line) => line.category === "ledger").map((line) => row(line, ofLedger(line))));
  body.append(sum("= device memory", p.device.expected_bytes, `${format.bytes(p.device.low_bytes)} to ${format.bytes(p.device.high_bytes)}`));
  fill(byId("ledger"), body);
}

function run(p: Prediction): void {
  const item = (name: string, value: string): HTMLElement[] => (value ? [el("dt", {}, name), el("dd", {}, value)] : []);
  const fits = p.cards.filter((card) => card.verdict === "fits" || card.verdict === "tight").map((card) => (card.verdict === "tight" ? `${card.name} (tight)` : card.name));
  fill(
    byId("run"),
    el(
      "dl",
      {},
      ...item("command", quoted(p.command)),
      ...item("PyTorch", [p.environment.torch, p.environment.cuda ? `CUDA ${p.environment.cuda}` : "", p.environment.python ? `Python ${p.environment.python}` : ""].filter((part) => part).join(", ")),
      ...item("steps", p.source === "snapshot" ? "" : `${p.steps}${p.end_reason ? `, ended by ${format.words(p.end_reason)}` : ""}`),
      ...item("allocator events", format.whole(p.counts.allocator_events)),
      ...item("kernels", p.counts.kernels > 0 ? format.whole(p.counts.kernels) : ""),
      ...item("with expandable segments", p.min_capacity_expandable_segments_bytes === null ? "" : `runs on ${format.bytes(p.min_capacity_expandable_segments_bytes)}`),
      ...item("cards it fits", fits.join(", ")),
    ),
    p.oom ? el("p", { class: "warning bad" }, `Out of memory at event ${format.whole(p.oom.event)}: ${format.bytes(p.oom.requested_bytes)} were requested, ${format.bytes(p.oom.free_bytes)} were free.${p.oom.ended_run ? " The run ended by it." : ""}`) : null,
    ...growth(p),
    ...p.warnings.map((warning) => el("p", { class: "warning" }, warning.message)),
  );
}

// What grows, what holds it and what to do: a paragraph for each holder.
function growth(p: Prediction): HTMLElement[] {
  const file = (line: string): string => line.slice(line.lastIndexOf("/", line.indexOf(":")) + 1);
  return (p.growth?.holders ?? []).slice(0, 3).map((holder) => {
    const made = holder.made[0];
    const of = holder.container === "variable" || holder.container === "" ? "" : ` (${holder.container} of ${format.whole(holder.length)})`;
    const where = [holder.kept_at.length > 0 ? `kept at ${holder.kept_at.map(file).join(", ")}` : "", made?.line ? `made at ${file(made.line)}` : "", made?.module ? `in ${made.module}` : ""];
    const text = `${format.bytes(holder.bytes_per_step)} a step held by ${holder.name || "nothing in Python"}${of}: ${where.filter((part) => part).join(", ")}. Instead: ${holder.remedy}.`;
    return el("p", { class: "warning", "data-growth": holder.bytes_per_step }, text);
  });
}

export function initPanels(p: Prediction): void {
  moment();
  selection();
  ledger(p);
  run(p);
  on(["position", "category", "theme"], moment);
  on(["block", "position", "theme"], selection);
  on(["theme"], () => ledger(p));
}
