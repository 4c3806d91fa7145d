// The page shows the verdict at once. Then it unpacks the data and makes the views.

import { initCurve, pan, stepTo, zoomBy } from "./curve";
import { decode, type Prediction } from "./data";
import { byId, fill, hideTip } from "./dom";
import { initIcicle, nodeCenter } from "./icicle";
import * as model from "./model";
import { initHeader, initPanels } from "./panels";
import { blockCenter, initSegments } from "./segments";
import { flush, get, initState, set } from "./state";
import { initStepBound } from "./stepbound";
import { initStepTime, workCenter } from "./steptime";
import { initTable } from "./table";
import { categoriesAt } from "./timeline";

const kSections = ["curve-card", "moment", "details", "map-card", "icicle-card", "table-card", "ledger-card", "run-card"];

function setTheme(dark: boolean): void {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

function theme(): void {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let stored: string | null = null;
  try {
    stored = localStorage.getItem("gpucast-theme");
  } catch {
    // A browser may refuse storage for pages that are local files.
  }
  setTheme(stored ? stored === "dark" : dark.matches);
  dark.addEventListener("change", () => {
    setTheme(dark.matches);
    changed();
  });
}

function changed(): void {
  if (get()) set({ theme: get().theme + 1 });
}

function toggleTheme(): void {
  const dark = document.documentElement.dataset.theme !== "dark";
  setTheme(dark);
  try {
    localStorage.setItem("gpucast-theme", dark ? "dark" : "light");
  } catch {
    // Then the choice is valid for this page only.
  }
  changed();
}

function help(): void {
  const dialog = byId<HTMLDialogElement>("help");
  if (dialog.open) dialog.close();
  else dialog.showModal();
}

// Esc undoes one thing at a time.
function escape(): void {
  hideTip();
  const { block, category, tree, search } = get();
  if (block >= 0) set({ block: -1 });
  else if (category >= 0 || tree || search) set({ category: -1, tree: null, search: "" });
  else whole();
}

const whole = (): void => model.setView(0, model.report.events);

function move(event: KeyboardEvent, direction: 1 | -1): void {
  const [from, to] = get().view;
  model.goTo(get().position + direction * (event.shiftKey ? Math.max(1, Math.round((to - from) / 100)) : 1));
}

const kKeys: Record<string, (event: KeyboardEvent) => void> = {
  ArrowLeft: (event) => move(event, -1),
  ArrowRight: (event) => move(event, 1),
  "[": () => stepTo(-1),
  "]": () => stepTo(1),
  p: () => model.goTo(model.report.peak),
  "+": () => zoomBy(0.5),
  "=": () => zoomBy(0.5),
  "-": () => zoomBy(2),
  "0": whole,
  "<": () => pan(-0.25),
  ">": () => pan(0.25),
  "/": () => byId("search").focus(),
  t: toggleTheme,
  "?": help,
  Escape: escape,
};

function keyboard(): void {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId<HTMLDialogElement>("help").open) {
      if (event.key === "?" && !event.ctrlKey) help();
      return;
    }
    const target = event.target as HTMLElement;
    if (target instanceof HTMLInputElement && target.type !== "range") {
      if (event.key === "Escape") target.blur();
      return;
    }
    const action = kKeys[event.key];
    if (!action) return;
    event.preventDefault();
    action(event);
  });
  const click = (id: string, action: () => void): void => byId(id).addEventListener("click", action);
  click("to-peak", () => model.goTo(model.report.peak));
  click("step-before", () => stepTo(-1));
  click("step-after", () => stepTo(1));
  click("zoom-in", () => zoomBy(0.5));
  click("zoom-out", () => zoomBy(2));
  click("zoom-reset", whole);
}

async function start(): Promise<void> {
  theme();
  byId("theme").addEventListener("click", toggleTheme);
  byId("help-button").addEventListener("click", help);
  const prediction = JSON.parse(byId("prediction").textContent!) as Prediction;
  initHeader(prediction);
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const data = byId("data");
  const report = await decode(prediction, data.textContent!.trim());
  data.remove(); // frees its text, which is as large as the file
  model.initModel(report);
  const hasModules = report.kind.module.some((module) => module >= 0);
  initState({
    position: report.peak,
    block: -1,
    hovered: -1,
    category: -1,
    tree: null,
    by: hasModules ? "module" : "stack",
    search: "",
    view: [0, report.events],
    theme: 0,
  });
  byId("loading").remove();
  for (const id of kSections) byId(id).hidden = false;
  byId<HTMLButtonElement>("by-module").disabled = !hasModules;
  byId<HTMLButtonElement>("by-stack").disabled = !report.kind.stack.some((stack) => stack >= 0);
  byId("step-before").hidden = byId("step-after").hidden = !report.explained;
  initPanels(prediction);
  initCurve();
  initStepBound();
  initStepTime();
  initSegments();
  initIcicle();
  initTable();
  keyboard();
  // For tests, and for questions from the browser's console.
  Object.assign(window, { gpucast: { report, model, get, set, flush, blockCenter, nodeCenter, workCenter, categoriesAt: (position: number) => categoriesAt(report, model.timeline, position) } });
  performance.mark("gpucast-ready");
  document.documentElement.dataset.ready = "true";
}

start().catch((error: unknown) => {
  const loading = document.getElementById("loading");
  if (loading) fill(loading, `The report cannot be shown: ${error instanceof Error ? error.message : String(error)}`);
  throw error;
});
