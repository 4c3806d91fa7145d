// The table of the moment's blocks. Only rows on screen are elements.

import { byId, el, fill } from "./dom";
import * as format from "./format";
import { alive, categoryOf, filterWords, isFiltered, kindMask, momentAt, moduleOf, operatorOf, phaseOf, report, sizeOf, stackLine, tensorOf } from "./model";
import { swatch } from "./palette";
import { get, on, set } from "./state";

const kRow = 30;

interface Column {
  name: string;
  className: string;
  width: string;
  text(block: number): string;
  order(block: number): number | string;
}

const kind = (block: number): number => report.block.kind[block]!;
const freed = (block: number): string => (report.block.death[block] === report.never ? "never" : format.whole(report.block.death[block]! - 1));
const born = (block: number): string => (report.block.birth[block] === 0 ? "before" : format.whole(report.block.birth[block]! - 1));

const kColumns: Column[] = [
  { name: "size", className: "number", width: "88px", text: (b) => format.bytes(sizeOf(b)), order: (b) => -sizeOf(b) },
  { name: "category", className: "category", width: "176px", text: (b) => format.words(categoryOf(b)), order: categoryOf },
  { name: "tensor", className: "", width: "minmax(120px, 1.3fr)", text: (b) => tensorOf(kind(b)), order: (b) => tensorOf(kind(b)) || "\uffff" },
  { name: "module", className: "", width: "minmax(150px, 1.5fr)", text: (b) => moduleOf(kind(b)), order: (b) => report.kind.module[kind(b)]! },
  { name: "operator", className: "", width: "minmax(130px, 1.1fr)", text: (b) => operatorOf(kind(b)), order: (b) => operatorOf(kind(b)) || "\uffff" },
  { name: "phase", className: "", width: "104px", text: (b) => format.words(phaseOf(kind(b))), order: (b) => report.kind.phase[kind(b)]! },
  { name: "step", className: "number", width: "52px", text: (b) => (report.explained ? String(report.block.step[b]) : ""), order: (b) => report.block.step[b]! },
  { name: "born", className: "number", width: "66px", text: born, order: (b) => report.block.birth[b]! },
  { name: "freed", className: "number", width: "66px", text: freed, order: (b) => report.block.death[b]! },
  { name: "stack", className: "mono", width: "minmax(130px, 1.4fr)", text: (b) => stackLine(kind(b)), order: (b) => stackLine(kind(b)) || "\uffff" },
];

// Columns that have values in this report. (A snapshot has no phases.)
let columns: Column[] = kColumns;

let sortBy = 0, descending = false;
let rows: Uint32Array = new Uint32Array();
let cursor = -1; // the row with the focus
let drawn = new Map<number, HTMLElement>(); // rows on screen

function update(): void {
  const mask = kindMask();
  const list = Array.from(alive(get().position)).filter((block) => mask[kind(block)]);
  const { order } = columns[sortBy]!;
  const keys = new Map(list.map((block) => [block, order(block)]));
  const sign = descending ? -1 : 1;
  list.sort((a, b) => {
    const x = keys.get(a)!, y = keys.get(b)!;
    return (x < y ? -sign : x > y ? sign : 0) || sizeOf(b) - sizeOf(a) || a - b;
  });
  rows = Uint32Array.from(list);
  drawn.clear();
  byId("table-space").replaceChildren();
  cursor = rows.indexOf(get().block);
  byId("table-space").style.height = `${rows.length * kRow}px`;
  byId("table").setAttribute("aria-rowcount", String(rows.length + 1));
  let total = 0;
  for (const block of rows) total += sizeOf(block);
  const moment = momentAt(get().position);
  fill(
    byId("table-note"),
    el("b", {}, `${format.whole(rows.length)} block${rows.length === 1 ? "" : "s"}, ${format.bytes(total)}`),
    ` ${isFiltered() ? `of ${filterWords()} ` : ""}at ${moment.event === "before the first event" ? "the start" : moment.event}`,
  );
  byId("clear-filter").hidden = !isFiltered();
  heads();
  scrolled();
}

function heads(): void {
  columns.forEach((column, i) => {
    const head = byId(`head-${column.name}`);
    head.setAttribute("aria-sort", i === sortBy ? (descending ? "descending" : "ascending") : "none");
    // Sizes are sorted from the largest, so an arrow down fits.
    head.dataset.arrow = i === sortBy ? ((column.name === "size") !== descending ? "▾" : "▴") : "";
  });
}

function row(i: number): HTMLElement {
  const block = rows[i]!;
  const element = el(
    "div",
    { class: "table-row", role: "row", "aria-rowindex": i + 2, "data-block": block },
    columns.map((column) => {
      const text = column.text(block);
      const cell = el("span", { role: "gridcell", class: column.className, title: text.length > 14 ? text : undefined }, ...(column.name === "category" ? [swatch(categoryOf(block)), el("span", {}, text)] : [text]));
      if (column.name === "size") cell.title = format.exact(sizeOf(block));
      return cell;
    }),
  );
  element.style.transform = `translateY(${i * kRow}px)`;
  return element;
}

/** Says which of the rows on screen is chosen, and which is hovered. */
function mark(): void {
  const { block, hovered } = get();
  for (const [i, element] of drawn) {
    element.ariaSelected = rows[i] === block ? "true" : "false";
    element.classList.toggle("hovered", rows[i] === hovered);
  }
}

function scrolled(): void {
  const box = byId("table-body");
  const from = Math.max(0, Math.floor(box.scrollTop / kRow) - 6), to = Math.min(rows.length, Math.ceil((box.scrollTop + box.clientHeight) / kRow) + 6);
  // A row that stays on screen keeps its element, so that a press and release on it are one click.
  const space = byId("table-space"), kept = new Map<number, HTMLElement>();
  for (let i = to - 1, next: HTMLElement | null = null; i >= from; --i) {
    const element: HTMLElement = drawn.get(i) ?? space.insertBefore(row(i), next);
    kept.set(i, element);
    next = element;
  }
  for (const [i, element] of drawn) if (!kept.has(i)) element.remove();
  drawn = kept;
  mark();
  byId("table-empty").hidden = rows.length > 0;
}

function show(i: number): void {
  const box = byId("table-body");
  const top = i * kRow, head = byId("table-head").offsetHeight;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + kRow + head > box.scrollTop + box.clientHeight) box.scrollTop = top + kRow + head - box.clientHeight;
}

const has = (values: Int32Array): boolean => values.some((value) => value >= 0);

export function initTable(): void {
  const { kind: kinds, explained } = report;
  const shown: Record<string, boolean> = { tensor: has(kinds.tensor), module: has(kinds.module), operator: has(kinds.operator), phase: explained, step: explained, stack: has(kinds.stack) };
  columns = kColumns.filter((column) => shown[column.name] ?? true);
  // The sum of the columns' minimum widths, so that a narrow screen scrolls inside of the table.
  const least = columns.reduce((sum, column) => sum + Number(/\d+/.exec(column.width)![0]) + 14, 24);
  byId("table").style.setProperty("--least", `${least}px`);
  byId("table").style.setProperty("--columns", columns.map((column) => column.width).join(" "));
  fill(
    byId("table-head"),
    ...columns.map((column, i) =>
      el("button", {
        id: `head-${column.name}`,
        role: "columnheader",
        class: column.className,
        onclick: () => {
          descending = sortBy === i ? !descending : false;
          sortBy = i;
          byId("table-body").scrollTop = 0;
          update();
        },
      }, column.name),
    ),
  );
  update();
  on(["position", "category", "tree", "search"], () => {
    byId("table-body").scrollTop = 0;
    update();
  });
  on(["block"], () => {
    cursor = rows.indexOf(get().block);
    if (cursor >= 0) show(cursor);
    scrolled();
  });
  on(["hovered"], mark);
  on(["theme"], update);
  const body = byId("table-body");
  body.addEventListener("scroll", scrolled, { passive: true });
  const blockOf = (event: Event): number => {
    const found = (event.target as HTMLElement).closest<HTMLElement>(".table-row");
    return found ? Number(found.dataset.block) : -1;
  };
  body.addEventListener("click", (event) => {
    const block = blockOf(event);
    if (block >= 0) set({ block: block === get().block ? -1 : block });
  });
  body.addEventListener("mouseover", (event) => set({ hovered: blockOf(event) }));
  body.addEventListener("mouseleave", () => set({ hovered: -1 }));
  body.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor(body.clientHeight / kRow) - 2);
    const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length };
    const move = moves[event.key];
    if (move === undefined || rows.length === 0) return;
    event.preventDefault();
    event.stopPropagation();
    cursor = Math.max(0, Math.min(rows.length - 1, cursor < 0 ? 0 : cursor + move));
    set({ block: rows[cursor]! });
  });
  const search = byId<HTMLInputElement>("search");
  search.addEventListener("input", () => set({ search: search.value }));
  on(["search"], () => {
    if (search.value !== get().search) search.value = get().search;
  });
  byId("clear-filter").addEventListener("click", () => set({ category: -1, tree: null, search: "" }));
}
