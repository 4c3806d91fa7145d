// The HTML report, end to end: `gpucast export --to html` of real captures, opened in headless Chromium.
//
//   make test-web
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { gzipSync } from "node:zlib";
import { analyze, bytesOf, close, exportHtml, folder, inputOf, open, optionsOf, root, settle, stepTime } from "./harness.mjs";

const kCases = ["real_mlp_torch26", "real_mlp_torch214", "snapshot_whole", "snapshot_expandable", "snapshot_ring_buffer", "profile_mlp_torch26", "out_of_memory", "expandable_segments", "does_not_fit", "truncated", "time_small"];
const sum = (values) => values.reduce((a, b) => a + b, 0);

after(close);

// time_small as a capture whose DataLoader was measured: a batch of 38 ms in one process, taken within the observed step.
function withLoader(name, change = {}, edit = () => {}) {
  const run = (workers, period_ns) => ({ workers, batches: 20, start_ns: 5e7, period_ns, main_cpu_ns: 3e5, batch_bytes: 2e7, others_cores: 0, mapped: false, batch_ns: [36e6, 38e6, 40e6, 37e6, 39e6], cpu_ns: 37e6, fetch_ns: 38e6, stages_ns: { transform: 9e6, decode: 27e6, collate: 1e6 }, read: { bytes: 3.2e6, device_bytes: 0, calls: 64, files: 32 }, queue_ns: 0 });
  const record = {
    record: "loader", kind: "dataloader", dataset: "ImageFolder", iterable: false, workers: 2, prefetch_factor: 2, pin_memory: true, batch_size: 32, others: 0, pin_ns: 1e6,
    machine: { cores: 8, threads_per_core: 1, ranks: 1 },
    next: [[1795360531770000, 40000, 38000], [1795360533990000, 20000, 1000], [1795360534030000, 20000, 1000]],
    measured: [run(0, 38e6), run(1, 39e6), run(2, 20e6)],
    said: [],
    ...change,
  };
  const lines = readFileSync(join(root, "tests/cases/time_small/input.jsonl"), "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
  lines.splice(lines.findIndex((line) => line.record === "end") + 1, 0, record);
  lines.at(-1).lines += 1;
  lines.forEach(edit);
  const path = join(folder, `${name}.gpucast`);
  writeFileSync(path, gzipSync(lines.map((line) => JSON.stringify(line)).join("\n") + "\n"));
  return path;
}

// One report a case, for all tests.
const reports = new Map();
function report(name) {
  if (!reports.has(name)) {
    const input = inputOf(name), options = optionsOf(name);
    reports.set(name, { file: exportHtml(input, options), json: analyze(input, options) });
  }
  return reports.get(name);
}

for (const name of kCases) {
  test(`${name}: the page says what analyze says, and everything adds up`, async () => {
    const { file, json } = report(name);
    const { page, problems, done } = await open(file);
    assert.equal(await page.locator("#verdict").innerText().then((text) => text.replace(/^\W+\s*/, "").toLowerCase()), json.verdict.replaceAll("_", " "));
    assert.deepEqual(await bytesOf(page, "#total-device"), [json.device.expected_bytes]);
    assert.deepEqual(await bytesOf(page, "#total-reserved"), [json.peak.reserved_bytes]);
    assert.deepEqual(await bytesOf(page, "#total-allocated"), [json.peak.allocated_bytes]);
    if (json.min_capacity_bytes !== null) assert.deepEqual(await bytesOf(page, "#total-least"), [json.min_capacity_bytes]);

    // The page opens at the peak: the legend is analyze's list of categories.
    const legend = await page.locator("#legend button").evaluateAll((rows) => Object.fromEntries(rows.map((row) => [row.dataset.category, Number(row.dataset.bytes)])));
    for (const { name: category, bytes } of json.categories) assert.equal(legend[category] ?? 0, bytes, category);
    assert.deepEqual(await bytesOf(page, "#now-allocated"), [json.peak.allocated_bytes]);
    assert.deepEqual(await bytesOf(page, "#now-free"), [json.peak.free_but_reserved_bytes]);

    // The ledger adds up from line to line.
    const lines = await page.locator("#ledger tr").evaluateAll((rows) => rows.map((row) => [row.classList.contains("sum"), Number(row.dataset.bytes)]));
    const sums = [];
    let total = 0;
    for (const [isSum, bytes] of lines) {
      if (isSum) {
        assert.equal(bytes, total);
        sums.push(bytes);
      } else {
        total += bytes;
      }
    }
    assert.equal(await page.locator("#total-request").getAttribute("data-bytes"), String(json.device.request_bytes));
    assert.deepEqual(sums, [json.peak.allocated_bytes, json.peak.reserved_bytes, json.device.expected_bytes]);

    // At every moment: categories, blocks and curve say the same; segments and curve too; blocks do not overlap.
    const checked = await page.evaluate(() => {
      const { report, model, categoriesAt } = window.gpucast;
      const wrong = [];
      const stride = Math.max(1, Math.floor(report.events / 400));
      for (let p = 0; p <= report.events; p += stride) {
        const blocks = model.alive(p);
        const size = blocks.reduce((all, block) => all + model.sizeOf(block), 0);
        const categories = categoriesAt(p).reduce((all, bytes) => all + bytes, 0);
        const allocated = model.timeline.allocated[p];
        let reserved = 0;
        for (let s = 0; s < report.segment.count; ++s) if (report.segment.birth[s] <= p && p < report.segment.death[s]) reserved += report.segment.size[s];
        if (size !== allocated || categories !== allocated) wrong.push(`position ${p}: ${allocated} in the curve, ${size} in blocks, ${categories} in categories`);
        if (reserved !== model.timeline.reserved[p]) wrong.push(`position ${p}: ${model.timeline.reserved[p]} in the curve, ${reserved} in segments`);
        for (let i = 1; i < blocks.length; ++i) {
          if (report.block.address[blocks[i - 1]] + model.sizeOf(blocks[i - 1]) > report.block.address[blocks[i]]) wrong.push(`position ${p}: blocks overlap`);
        }
      }
      return { wrong, allocated: Math.max(...model.timeline.allocated), reserved: Math.max(...model.timeline.reserved), events: report.events };
    });
    assert.deepEqual(checked.wrong, []);
    assert.equal(checked.allocated, json.peak.allocated_bytes);
    assert.equal(checked.reserved, json.peak.reserved_bytes);
    assert.equal(checked.events, json.counts.allocator_events);
    assert.deepEqual(problems, []);
    await done();
  });
}

test("the page is one file that names no other, below 1 MB without its data", () => {
  const html = readFileSync(report("real_mlp_torch26").file, "utf8");
  const style = /<style>([^<]*)</.exec(html)[1], markup = html.slice(0, html.indexOf("<script"));
  assert.equal(/(?:src|href)="(?!#|data:)/.test(markup), false);
  assert.equal(/@import|url\(/.test(style), false);
  // The browser would not fetch anything either.
  assert.match(markup, /Content-Security-Policy" content="default-src 'none'/);
  const data = /<script id="data"[^>]*>([^<]*)</.exec(html)[1];
  assert.ok(html.length - data.length < 1e6, `${html.length - data.length} bytes`);
});

test("a block that is clicked in the segment map is found in all views", async () => {
  const { page, problems, done } = await open(report("real_mlp_torch26").file);
  const { block, x, y } = await page.evaluate(() => {
    const { report, model, blockCenter } = window.gpucast;
    // A parameter: it has a tensor, a module and a stack.
    const parameters = report.categories.indexOf("parameters");
    const blocks = Array.from(model.alive(report.peak)).filter((b) => report.kind.category[report.block.kind[b]] === parameters);
    const found = blocks.sort((a, b) => model.sizeOf(b) - model.sizeOf(a))[0];
    document.getElementById("map").scrollIntoView({ block: "center" });
    return { block: found, ...blockCenter(found) };
  });
  await page.mouse.click(x, y);
  await settle(page);
  const details = page.locator("#details");
  assert.equal(await details.getAttribute("data-block"), String(block));
  const expected = await page.evaluate((b) => {
    const { report, model } = window.gpucast;
    const kind = report.block.kind[b];
    return { tensor: model.tensorOf(kind), module: model.moduleOf(kind), address: `0x${report.block.address[b].toString(16)}`, category: model.categoryOf(b) };
  }, block);
  const words = await details.innerText();
  for (const part of [expected.tensor, expected.module, expected.address, expected.category]) assert.ok(part && words.includes(part), `${part} in ${words}`);
  assert.match(await page.locator("#stack").innerText(), /train_mlp\.py:\d+/);
  const row = page.locator(`.table-row[data-block="${block}"]`);
  assert.equal(await row.getAttribute("aria-selected"), "true");
  assert.match(await page.locator("#curve-note").innerText(), /Shaded: the life of the selected block/);
  // Its last event: the moment moves there, and the block is gone behind it.
  await details.getByRole("button", { name: /^event/ }).first().click();
  await settle(page);
  assert.equal(await page.evaluate((b) => window.gpucast.get().position === window.gpucast.report.block.birth[b], block), true);
  await page.keyboard.press("Escape");
  await settle(page);
  assert.equal(await details.getAttribute("data-block"), "-1");
  assert.deepEqual(problems, []);
  await done();
});

test("the curve zooms, and a click in it chooses the moment for all views", async () => {
  const { page, problems, done } = await open(report("real_mlp_torch26").file);
  const state = () => page.evaluate(() => ({ ...window.gpucast.get(), events: window.gpucast.report.events }));
  const { events } = await state();
  assert.deepEqual((await state()).view, [0, events]);
  const box = await page.locator("#curve .u-over").boundingBox();
  const at = (share) => box.x + share * box.width;
  // Drag from a quarter to a half.
  await page.mouse.move(at(0.25), box.y + 60);
  await page.mouse.down();
  await page.mouse.move(at(0.5), box.y + 80, { steps: 6 });
  await page.mouse.up();
  await settle(page);
  const zoomed = (await state()).view;
  assert.ok(Math.abs(zoomed[0] - events / 4) < events / 50 && Math.abs(zoomed[1] - events / 2) < events / 50, String(zoomed));
  await page.mouse.click(at(0.5), box.y + 60);
  await settle(page);
  const { position } = await state();
  assert.ok(Math.abs(position - (zoomed[0] + zoomed[1]) / 2) < events / 50, String(position));
  // What the panels show is that moment's.
  const categories = await page.evaluate(() => [window.gpucast.model.timeline.allocated[window.gpucast.get().position]]);
  assert.deepEqual(await bytesOf(page, "#now-allocated"), categories);
  assert.equal(sum(await bytesOf(page, "#legend button")), categories[0]);
  const blocks = await page.evaluate(() => window.gpucast.model.alive(window.gpucast.get().position).length);
  assert.match(await page.locator("#table-note").innerText(), new RegExp(`^${blocks} block`));
  assert.match(await page.locator("#map-note").innerText(), new RegExp(`${blocks} block`));
  await page.getByRole("button", { name: "Whole run" }).click();
  await settle(page);
  assert.deepEqual((await state()).view, [0, events]);
  assert.deepEqual(problems, []);
  await done();
});

test("the keyboard does it all", async () => {
  const { page, problems, done } = await open(report("real_mlp_torch26").file);
  const get = (name) => page.evaluate((key) => window.gpucast.get()[key], name);
  const press = async (key) => {
    await page.keyboard.press(key);
    await settle(page);
  };
  const peak = await get("position");
  await press("ArrowLeft");
  assert.equal(await get("position"), peak - 1);
  await press("ArrowRight");
  await press("ArrowRight");
  assert.equal(await get("position"), peak + 1);
  await press("[");
  const before = await get("position");
  assert.ok(before < peak);
  await press("]");
  assert.ok((await get("position")) > before);
  await press("p");
  assert.equal(await get("position"), peak);
  const whole = await get("view");
  await press("+");
  const zoomed = await get("view");
  assert.ok(zoomed[1] - zoomed[0] <= (whole[1] - whole[0]) / 2 + 1);
  await press("Escape");
  assert.deepEqual(await get("view"), whole);
  await press("?");
  assert.equal(await page.locator("#help").evaluate((dialog) => dialog.open), true);
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#help").evaluate((dialog) => dialog.open), false);
  // Every view can be reached with Tab.
  const reached = new Set();
  for (let i = 0; i < 80; ++i) {
    await page.keyboard.press("Tab");
    reached.add(await page.evaluate(() => document.activeElement.id));
  }
  for (const id of ["moment-range", "map", "icicle", "search", "table-body", "head-size"]) assert.ok(reached.has(id), id);
  await page.locator("#map").focus();
  await press("ArrowRight");
  const first = await get("block");
  assert.ok(first >= 0);
  await press("ArrowRight");
  assert.notEqual(await get("block"), first);
  await page.locator("#table-body").focus();
  await press("Home");
  assert.equal(await page.locator('.table-row[aria-selected="true"]').getAttribute("aria-rowindex"), "2");
  await page.locator("#icicle").focus();
  await press("Escape");
  await press("ArrowDown");
  assert.notEqual(await get("tree"), null);
  assert.deepEqual(problems, []);
  await done();
});

test("the table filters, sorts and shows only rows on screen", async () => {
  const { page, problems, done } = await open(report("real_mlp_torch26").file);
  const counts = async () => Number(/^([\d,]+) block/.exec(await page.locator("#table-note").innerText())[1].replaceAll(",", ""));
  const all = await counts();
  await page.locator("#search").fill("weight");
  await settle(page);
  const filtered = await counts();
  assert.ok(filtered > 0 && filtered < all, `${filtered} of ${all}`);
  for (const text of await page.locator(".table-row").allInnerTexts()) assert.match(text, /weight/);
  assert.match(await page.locator("#curve-note").innerText(), /Black line: “weight”/);
  await page.getByRole("button", { name: "Show all" }).click();
  await settle(page);
  assert.equal(await counts(), all);
  // By category, with a click in the legend.
  await page.locator('#legend button[data-category="parameters"]').click();
  await settle(page);
  const parameters = await page.locator('#legend button[data-category="parameters"]').getAttribute("data-bytes");
  const shown = await page.evaluate(() => Array.from(window.gpucast.model.alive(window.gpucast.get().position)).filter((b) => window.gpucast.model.kindMask()[window.gpucast.report.block.kind[b]]).reduce((size, b) => size + window.gpucast.model.sizeOf(b), 0));
  assert.equal(shown, Number(parameters));
  for (const text of await page.locator(".table-row .category").allInnerTexts()) assert.equal(text, "parameters");
  await page.keyboard.press("Escape");
  await settle(page);
  // By born, ascending and descending.
  for (const direction of [1, -1]) {
    await page.locator("#head-born").click();
    await settle(page);
    const born = await page.locator(".table-row").evaluateAll((rows) => rows.map((row) => window.gpucast.report.block.birth[row.dataset.block]));
    assert.deepEqual(born, [...born].sort((a, b) => direction * (a - b)));
  }
  assert.ok((await page.locator(".table-row").count()) <= 40);
  await page.locator("#search").fill("nothing is called this");
  await settle(page);
  assert.equal(await page.locator("#table-empty").isVisible(), true);
  assert.deepEqual(problems, []);
  await done();
});

test("a row is one element from press to release, whatever is hovered between them", async () => {
  const { page, problems, done } = await open(report("real_mlp_torch26").file);
  const rows = page.locator(".table-row");
  await rows.nth(1).scrollIntoViewIfNeeded();
  await settle(page);
  const box = await rows.nth(1).boundingBox();
  await page.mouse.move(box.x + 20, box.y + box.height / 2);
  await page.mouse.down();
  await page.evaluate(() => document.querySelector(".table-row").dispatchEvent(new MouseEvent("mouseover", { bubbles: true })));
  await settle(page);
  await page.mouse.up();
  await settle(page);
  assert.equal(await rows.nth(1).getAttribute("aria-selected"), "true");
  assert.deepEqual(problems, []);
  await done();
});

test("a module that is clicked in the icicle filters the other views", async () => {
  const { page, problems, done } = await open(report("real_mlp_torch26").file);
  const spot = await page.evaluate(() => {
    document.getElementById("icicle").scrollIntoView({ block: "center" });
    return window.gpucast.nodeCenter("body.0 (Linear)");
  });
  assert.ok(spot);
  await page.mouse.click(spot.x, spot.y);
  await settle(page);
  assert.match(await page.locator("#table-note").innerText(), /of in 0 at|in 0/);
  const modules = await page.locator(".table-row").evaluateAll((rows) => rows.map((row) => window.gpucast.model.moduleOf(window.gpucast.report.block.kind[row.dataset.block])));
  assert.ok(modules.length > 0);
  for (const module of modules) assert.equal(module, "body.0 (Linear)");
  // The bytes of the modules add up to everything.
  const total = await page.evaluate(() => {
    const { model, report, get } = window.gpucast;
    const tree = model.tree("module");
    return Array.from(model.alive(get().position)).every((b) => tree.ofKind[report.block.kind[b]] > 0);
  });
  assert.equal(total, true);
  await page.locator("#by-stack").click();
  await settle(page);
  assert.equal(await page.evaluate(() => window.gpucast.get().tree), null);
  assert.match(await page.locator("#icicle").getAttribute("aria-label"), /Python frames/);
  assert.deepEqual(problems, []);
  await done();
});

for (const name of ["real_mlp_torch26", "snapshot_ring_buffer", "out_of_memory", "time_small", "with a loader"]) {
  test(`${name}: nothing overflows on a phone, and a tap chooses a moment`, async () => {
    const file = name === "with a loader" ? exportHtml(withLoader("phone")) : report(name).file;
    const { page, problems, done } = await open(file, { width: 390, height: 844, touch: true });
    for (const width of [390, 320]) {
      await page.setViewportSize({ width, height: 844 });
      await settle(page);
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width);
    }
    const box = await page.locator("#curve .u-over").boundingBox();
    const before = await page.evaluate(() => window.gpucast.get().position);
    await page.touchscreen.tap(box.x + 8, box.y + box.height / 2);
    await settle(page);
    assert.ok((await page.evaluate(() => window.gpucast.get().position)) <= before);
    assert.deepEqual(problems, []);
    await done();
  });
}

for (const name of ["real_mlp_torch26", "time_small"]) {
  test(`${name}: the panels beside the views end with them`, async () => {
    const { page, problems, done } = await open(report(name).file, { width: 1280, height: 700 });
    await page.evaluate(() => document.getElementById("table-card").scrollIntoView());
    await settle(page);
    const [panels, table] = await page.evaluate(() => [document.querySelector(".side-inner").getBoundingClientRect().bottom, document.getElementById("table-card").getBoundingClientRect().top]);
    assert.ok(panels <= table, `${panels} ${table}`);
    // The views are below each other, none below the panels.
    const tops = await page.evaluate(() => ["curve-card", "map-card", "icicle-card"].map((id) => document.getElementById(id).getBoundingClientRect().left));
    assert.equal(new Set(tops).size, 1);
    assert.deepEqual(problems, []);
    await done();
  });
}

const shownPaths = (page) => page.locator("#paths .path-row").evaluateAll((rows) => rows.map((row) => [row.dataset.path, Number(row.dataset.ns), row.classList.contains("bounds")]));
// Where a bar begins and ends, in shares of its track.
const barOf = (page, path, part = ".path-strip") =>
  page.evaluate(([path, part]) => {
    const track = document.querySelector(`[data-path="${path}"] .path-track`), all = track.getBoundingClientRect(), bar = track.querySelector(part).getBoundingClientRect();
    return [(bar.left - all.left) / all.width, (bar.right - all.left) / all.width];
  }, [path, part]);
const near = (a, b, message) => assert.ok(Math.abs(a - b) < 0.006, `${message ?? ""} ${a}, ${b}`);

test("both paths of a step, the bound and the waiting are what time says", async () => {
  const input = withLoader("loader"), times = stepTime(input), { loader } = times;
  const { page, problems, done } = await open(exportHtml(input));
  assert.equal(times.bound, "loader");
  assert.equal(Number(await page.locator("#step-title").getAttribute("data-ns")), times.step.expected_ns);
  const ms = (ns) => `${(ns / 1e6).toPrecision(3)} ms`;
  assert.equal(await page.locator("#step-title").innerText(), `A step takes ${ms(times.step.expected_ns)} on NVIDIA A100-SXM4-80GB`);
  assert.equal(
    await page.locator("#step-bound").innerText(),
    `Loader-bound: a batch comes every ${ms(loader.now.batch.expected_ns)}, the GPU works ${ms(times.gpu_ns)}, the host ${ms(times.host_ns)}. 90 % within ${ms(times.step.low_ns)} to ${ms(times.step.high_ns)}.`,
  );
  assert.deepEqual(await shownPaths(page), [
    ["step", times.step.expected_ns, false],
    ["gpu", times.gpu_ns, false],
    ["host", times.host_ns, false],
    ["loader", loader.now.batch.expected_ns * loader.batches_per_step, true],
  ]);
  assert.match(await page.locator('[data-path="loader"]').innerText(), /^Loader\s+2 workers\s+bound\s+[\d.]+ ms$/);
  // One scale for all bars.
  const [, right] = await barOf(page, "step"), scale = right / times.step.expected_ns;
  for (const [path, ns] of await shownPaths(page)) near((await barOf(page, path))[1], ns * scale, path);
  const range = await barOf(page, "step", ".path-range");
  near(range[0], times.step.low_ns * scale);
  near(range[1], times.step.high_ns * scale);
  // What is waited for is the end of the step, and looks like nothing else.
  const waits = await barOf(page, "step", ".path-waits");
  near(waits[0], loader.step_without.expected_ns * scale);
  near(waits[1], right);
  assert.match(await page.evaluate(() => getComputedStyle(document.querySelector(".path-waits")).backgroundImage), /^repeating-linear-gradient/);
  // The loader's bar is a batch, part by part.
  const parts = await page.locator('[data-path="loader"] .path-strip i').evaluateAll((pieces) => pieces.map((piece) => [piece.title, piece.getBoundingClientRect().width]));
  const all = sum(parts.map(([, width]) => width)), batch = sum(loader.stages.map(({ ns }) => ns));
  assert.deepEqual(parts.map(([title]) => title.split(",")[0]), loader.stages.map(({ name }) => name));
  parts.forEach(([title, width], i) => near(width / all, loader.stages[i].ns / batch, title));
  for (const { name } of loader.stages) assert.ok((await page.locator("#path-legend").innerText()).includes(name), name);
  // Other numbers of workers; the script's own is marked.
  const rows = await page.locator("#workers tbody tr").evaluateAll((found) => found.map((row) => [Number(row.dataset.workers), row.getAttribute("aria-current") === "true", row.lastChild.textContent, row.children[4].textContent]));
  assert.deepEqual(rows, loader.choices.map((one) => [one.workers, one.workers === loader.script_workers, one.bound === "loader" && one.limit && one.limit !== "workers" ? `loader (${one.limit})` : one.bound, `${(100 * one.wait_share).toFixed(0)} %`]));
  assert.ok((await page.locator("#workers .own").innerText()).startsWith("yours"));
  assert.ok((await page.locator("#workers .advice").innerText()).startsWith(`${loader.enough_workers} workers keep a100-80 busy on this CPU; with your 2 it waits ${(100 * loader.now.wait_share).toFixed(0)} % of the time`));
  const notes = await page.locator("#step-notes").innerText();
  for (const part of ["DataLoader of ImageFolder: batches of 32, 2 workers, prefetch 2, pinned.", "A batch takes one process 38.0 ms: decode 27.0 ms, transform 9.00 ms, ", "It reads 3.2 MB in 32 files, 100 % of that from memory.", "--storage"]) assert.ok(notes.includes(part), `${part} in ${notes}`);
  assert.deepEqual(problems, []);
  await done();
});

test("without workers a batch is made behind the program's own work", async () => {
  const input = withLoader("inline", { workers: 0, prefetch_factor: 0 }), times = stepTime(input);
  const { page, problems, done } = await open(exportHtml(input));
  const [from, to] = await barOf(page, "loader"), [, host] = await barOf(page, "host");
  near(from, host);
  near((to - from) / host, times.loader.now.batch.expected_ns / times.host_ns);
  assert.match(await page.locator('[data-path="loader"]').innerText(), /^Loader\s+in the program itself/);
  assert.deepEqual(problems, []);
  await done();
});

test("without a measured loader the GPU, the host and the bound remain", async () => {
  const unmeasured = withLoader("unmeasured", { measured: [], next: [[1795360533990000, 20000, 1000]] }), none = withLoader("none", { kind: "none" });
  for (const [input, said] of [
    [inputOf("time_small"), /^$/],
    [unmeasured, /^DataLoader of ImageFolder: batches of 32, .*\s+How fast it is was not measured/],
    [none, /^The script's steps take no batch from a torch\.utils\.data\.DataLoader/],
  ]) {
    const times = stepTime(input);
    const { page, problems, done } = await open(exportHtml(input));
    assert.deepEqual(await shownPaths(page), [["step", times.step.expected_ns, false], ["gpu", times.gpu_ns, times.bound === "gpu"], ["host", times.host_ns, times.bound === "host"]]);
    assert.match(await page.locator("#step-bound").innerText(), new RegExp(`^${times.bound}-bound: `, "i"));
    assert.equal(await page.locator("#workers").isVisible(), false);
    assert.equal(await page.locator(".path-waits").count(), 0);
    assert.match(await page.locator("#step-notes").innerText(), said);
    assert.deepEqual(problems, []);
    await done();
  }
});

test("the time of a step is what analyze and time say", async () => {
  const { file, json } = report("time_small");
  const { page, problems, done } = await open(file);
  assert.equal(await page.locator("#time-card").isVisible(), true);
  assert.equal(Number(await page.locator("#time-title").getAttribute("data-ns")), json.gpu_time.expected_ns);
  const words = await page.locator("#time-title").innerText();
  const ms = (ns) => (ns / 1e6).toPrecision(3);
  assert.equal(words, `Step 2 on ${json.gpu.full_name}: ${ms(json.gpu_time.expected_ns)} ms of GPU time (${ms(json.gpu_time.low_ns)} to ${ms(json.gpu_time.high_ns)})`);
  const times = stepTime(inputOf("time_small"));
  for (const [id, parts] of [["time-kinds", times.by_kind], ["time-phases", times.by_phase]]) {
    const shown = await page.locator(`#${id} .time-row`).evaluateAll((rows) => rows.map((row) => [row.dataset.name, Number(row.dataset.ns)]));
    assert.deepEqual(shown.map(([name]) => name), parts.map((part) => part.name));
    shown.forEach(([name, ns], i) => assert.ok(Math.abs(ns - parts[i].gpu_ns) < 1e-6 * ns, `${name}: ${ns}, ${parts[i].gpu_ns}`));
  }
  // Work of one stream does not overlap, and is asked for in the order of the history.
  const wrong = await page.evaluate(() => {
    const { work, events } = window.gpucast.report, wrong = [], ends = new Map();
    for (let i = 0; i < work.count; ++i) {
      if (work.start[i] < (ends.get(work.stream[i]) ?? 0) - 1e-3) wrong.push(`${i} overlaps`);
      ends.set(work.stream[i], work.start[i] + work.duration[i]);
      if (i > 0 && work.position[i] < work.position[i - 1]) wrong.push(`${i} goes back`);
      if (work.position[i] > events) wrong.push(`${i} is behind the history`);
    }
    return wrong;
  });
  assert.deepEqual(wrong, []);
  // What a phase asks for lies in that phase of the history: behind an event of it, or right before the first.
  const places = await page.evaluate(() => {
    const { report, model } = window.gpucast, { work } = report;
    return Array.from({ length: work.count }, (_, i) => [work.names[work.phase[i]].replaceAll("_", " "), [0, 1].map((later) => model.momentAt(work.position[i] + later))]);
  });
  for (const [phase, moments] of places) {
    const found = moments.map((moment) => `${moment.phase}, ${moment.step}`);
    // The optimizer allocates nothing here: it lies between the last event of one step and the first of the next.
    if (phase === "optimizer step") assert.deepEqual(found, ["backward, step 2", "data, step 3"]);
    else assert.ok(found.includes(`${phase}, step 2`), `${phase}: ${found}`);
  }
  assert.deepEqual(problems, []);
  await done();
});

test("a click on an operation moves the moment of all views, and theirs moves the strip's", async () => {
  const { page, problems, done } = await open(report("time_small").file);
  const operation = async () => Number(await page.locator("#time-moment").getAttribute("data-operation"));
  const position = () => page.evaluate(() => window.gpucast.get().position);
  const pixels = () => page.evaluate(() => document.getElementById("time").toDataURL());
  // The first product of forward, and a spot in it.
  const { i, expected, x, y } = await page.evaluate(() => {
    const { report, workCenter, model } = window.gpucast, { work } = report;
    const i = Array.from(work.kind).findIndex((kind, k) => work.names[kind] === "gemm" && work.names[work.phase[k]] === "forward");
    document.getElementById("time-card").scrollIntoView({ block: "center" });
    return { i, expected: { position: work.position[i], allocated: model.timeline.allocated[work.position[i]] }, ...workCenter(i) };
  });
  assert.notEqual(await position(), expected.position);
  await page.mouse.move(x, y);
  const tip = await page.locator("#tip").innerText();
  for (const part of ["aten::addmm", "256 x 256 x 16384, fp32", "gemm", "µs", "compute", "head (Linear)", "forward"]) assert.ok(tip.includes(part), `${part} in ${tip}`);
  await page.mouse.click(x, y);
  await settle(page);
  assert.equal(await position(), expected.position);
  assert.equal(await operation(), i);
  assert.deepEqual(await bytesOf(page, "#now-allocated"), [expected.allocated]);
  assert.match(await page.locator("#moment-place").innerText(), /forward, step 2/);
  assert.match(await page.locator("#time-moment").innerText(), /^aten::addmm 256 x 256 x 16384, fp32 · .* bound by compute · occupancy [\d.]+ % · head \(Linear\) · forward · /);
  // With the keys of the strip from operation to operation; elsewhere they go from event to event, and the strip follows.
  await page.locator("#time").focus();
  await page.keyboard.press("ArrowRight");
  await settle(page);
  assert.equal(await operation(), i + 1);
  assert.equal(await position(), await page.evaluate((k) => window.gpucast.report.work.position[k], i + 1));
  await page.keyboard.press("Home");
  await settle(page);
  assert.equal(await operation(), 0);
  await page.evaluate(() => document.activeElement.blur());
  const before = await pixels();
  await page.evaluate((p) => window.gpucast.model.goTo(p), expected.position + 1);
  await settle(page);
  assert.equal(await operation(), i + 1);
  assert.match(await page.locator("#time-moment").innerText(), /^Next: /);
  assert.notEqual(await pixels(), before);
  // Outside of the step there is no line, and a way back.
  await page.evaluate(() => window.gpucast.model.goTo(20));
  await settle(page);
  assert.equal(await operation(), -1);
  assert.match(await page.locator("#time-moment").innerText(), /\(step 1\) is outside of this step/);
  await page.locator("#time-moment button").click();
  await settle(page);
  const highest = await page.evaluate(() => Math.max(...Array.from(window.gpucast.report.work.position, (p) => window.gpucast.model.timeline.allocated[p])));
  assert.deepEqual(await bytesOf(page, "#now-allocated"), [highest]);
  assert.deepEqual(problems, []);
  await done();
});

test("the strip zooms where it is dragged, and back", async () => {
  const { page, problems, done } = await open(report("time_small").file);
  await page.evaluate(() => document.getElementById("time-card").scrollIntoView({ block: "center" }));
  const spot = (i) => page.evaluate((k) => window.gpucast.workCenter(k), i);
  const apart = async () => (await spot(8)).x - (await spot(2)).x;
  const whole = await apart(), a = await spot(2), b = await spot(8);
  await page.mouse.move(a.x, a.y);
  await page.mouse.down();
  await page.mouse.move(b.x, b.y, { steps: 5 });
  await page.mouse.up();
  await settle(page);
  const width = await page.evaluate(() => document.getElementById("time").clientWidth);
  assert.ok(Math.abs((await apart()) - (width - 68)) < 3, `${await apart()} of ${width}`);
  await page.locator("#time-whole").click();
  assert.ok(Math.abs((await apart()) - whole) < 1e-6);
  await page.locator("#time-in").click();
  assert.ok(Math.abs((await apart()) - 2 * whole) < 1);
  assert.deepEqual(problems, []);
  await done();
});

test("a report without an observed step has no view of its time", async () => {
  for (const name of ["real_mlp_torch26", "snapshot_whole"]) {
    const { page, problems, done } = await open(report(name).file);
    assert.equal(await page.locator("#time-card").isVisible(), false);
    assert.equal(await page.locator("#step-card").isVisible(), false);
    assert.equal(await page.evaluate(() => window.gpucast.report.work), null);
    assert.deepEqual(problems, []);
    await done();
  }
});

test("dark and light follow the system, and the switch", async () => {
  const background = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await open(report("real_mlp_torch26").file), dark = await open(report("real_mlp_torch26").file, { dark: true });
  const [bright, dim] = [await background(light.page), await background(dark.page)];
  assert.notEqual(bright, dim);
  await light.page.locator("#theme").click();
  await settle(light.page);
  assert.equal(await background(light.page), dim);
  await dark.page.keyboard.press("t");
  await settle(dark.page);
  assert.equal(await background(dark.page), bright);
  assert.deepEqual([...light.problems, ...dark.problems], []);
  await light.done();
  await dark.done();
});

test("names that look like markup stay text", async () => {
  const evil = '</script><img src=x onerror="window.broken=1"><!--<script>';
  const input = withLoader("evil", { said: [evil] }, (line) => {
    if (line.record === "module") line.name = line.name ? `${line.name}${evil}` : line.name;
    if (line.record === "module") line.type += evil;
    if (line.record === "stack") line.frames = line.frames.map(([file, number, name]) => [file + evil, number, name + evil]);
    if (line.record === "header") line.command.push(evil);
    if (line.record === "process") line.torch += evil;
    if (line.record === "loader") line.dataset += evil;
    if (Array.isArray(line) && line[0] === "tensor") line[5] += evil;
    if (Array.isArray(line) && line[0] === "kernel_name") line[2] += evil;
    if (Array.isArray(line) && line[0] === "operator_kind") line[2] += evil;
  });
  const { page, problems, done } = await open(exportHtml(input));
  assert.equal(await page.locator("img").count(), 0);
  assert.ok((await page.locator("#command").innerText()).includes(evil));
  assert.ok((await page.locator("#step-notes").innerText()).split(evil).length > 2);
  // Parameters have a tensor, a module and a stack.
  await page.locator('#legend button[data-category="parameters"]').click();
  await settle(page);
  await page.locator(".table-row").first().click();
  await settle(page);
  assert.ok((await page.locator("#details .block-name").innerText()).includes(evil));
  assert.ok((await page.locator("#stack").innerText()).includes(evil));
  const box = await page.locator("#icicle").boundingBox();
  await page.mouse.move(box.x + 50, box.y + 50);
  await settle(page);
  // An operation with a module.
  const spot = await page.evaluate(() => {
    document.getElementById("time-card").scrollIntoView({ block: "center" });
    return window.gpucast.workCenter(Array.from(window.gpucast.report.work.module).findIndex((module) => module > 0));
  });
  await page.mouse.move(spot.x, spot.y);
  await page.mouse.click(spot.x, spot.y);
  await settle(page);
  const tip = await page.locator("#tip").innerText(), chosen = await page.locator("#time-moment").innerText();
  assert.ok(tip.split(evil).length > 2, tip); // its name and its module's
  assert.ok(chosen.split(evil).length > 2, chosen);
  assert.equal(await page.evaluate(() => window.broken), undefined);
  assert.equal(await page.locator("script").count(), 2); // the data's element is gone once it is read
  assert.deepEqual(problems, []);
  await done();
});
