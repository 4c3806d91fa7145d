// The page of `gpucast sweep`, with made-up rows.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { after, test } from "node:test";
import { close, folder, open, root } from "./harness.mjs";

after(close);
const gpucast = resolve(process.env.GPUCAST_BIN ?? join(root, "build/release/bin/gpucast"));
const kGiB = 2 ** 30;

function row(batch, layers, gpu, capacity_gib) {
  const memory = batch * layers * 2 ** 20, status = memory > capacity_gib * kGiB ? "does_not_fit" : "fits";
  const values = { "--batch": batch, "--layers": layers }, run = `gpucast run --gpu ${gpu} -- python t.py --batch ${batch} --layers ${layers}`;
  return { case: `${batch}-${layers}`, values, gpu, status, run, capacity_bytes: capacity_gib * kGiB, peak_reserved_bytes: memory, device_expected_bytes: memory, step_ns: 1e6 * layers, samples_per_s: (batch / layers) * 1e3 };
}

function pageOf(name, rows, names = ["--batch", "--layers"]) {
  const template = execFileSync(gpucast, ["sweep", "--page"], { encoding: "utf8", maxBuffer: 1 << 28 });
  const data = JSON.stringify({ title: "sweep.yaml", names, gpus: ["rtx3060", "rtx3090"], rows }).replaceAll("<", "\\u003c");
  const path = join(folder, `${name}.html`);
  writeFileSync(path, template.replace("<!--gpucast:cases-->", () => `<script type="application/json" id="cases">${data}</script>`));
  return path;
}

const rows = [];
for (const batch of [256, 1024, 4096]) for (const layers of [2, 4]) rows.push(row(batch, layers, "rtx3060", 8), row(batch, layers, "rtx3090", 24));
const failed = { case: "x", values: { "--batch": 4096, "--layers": "</script><b>8" }, gpu: "rtx3060", status: "failed", run: "gpucast run", error: "the script raised ValueError" };

for (const dark of [false, true]) {
  test(`shows each card's rows${dark ? " in the dark" : ""}`, async () => {
    const { page, problems, done } = await open(pageOf("cases", [...rows, failed]), { dark });
    assert.equal(await page.locator("#reason").textContent(), "13 rows: 11 fits, 1 does not fit, 1 failed");
    assert.equal(await page.locator("#best tbody tr").count(), 5);
    assert.match(await page.locator("#best tbody tr").first().textContent(), /^40962fits/);
    assert.equal(await page.locator("#table tbody tr").count(), 7);
    assert.equal(await page.locator("#fit .cell").count(), 9);
    assert.equal(await page.locator("#fit .cell.no").count(), 1);
    assert.ok((await page.locator("#table .result.failed").textContent()).includes("ValueError"));
    await page.locator("#gpus button", { hasText: "rtx3090" }).click();
    assert.equal(await page.locator("#best tbody tr").count(), 6);
    await page.locator("#names button", { hasText: "--layers" }).click();
    assert.match(await page.locator("#lines-note").textContent(), /--layers alone/);
    assert.deepEqual(problems, []);
    await done();
  });
}

test("a point shows its row", async () => {
  const { page, done } = await open(pageOf("tip", rows));
  await page.locator("#memory").scrollIntoViewIfNeeded();
  const box = await page.locator("#memory .u-over").boundingBox();
  for (let y = 0; y < box.height && (await page.locator("#tip").isHidden()); y += 10) await page.mouse.move(box.x + (0.4 / 2.8) * box.width, box.y + y);
  assert.match(await page.locator("#tip").textContent(), /--batch 256.*rtx3060: fits/);
  await done();
});

test("10,000 rows are drawn in a few seconds, and nothing to draw is no error", async () => {
  const many = [];
  for (let batch = 1; batch <= 100; ++batch) for (let layers = 1; layers <= 100; ++layers) many.push(row(batch, layers, "rtx3060", 8));
  const begin = Date.now();
  const large = await open(pageOf("many", many));
  assert.ok(Date.now() - begin < 10_000);
  assert.match(await large.page.locator("#rows-note").textContent(), /first 200 of 10,000/);
  assert.deepEqual(large.problems, []);
  await large.done();
  const none = await open(pageOf("none", [{ ...failed, values: {} }], []));
  assert.deepEqual(none.problems, []);
  await none.done();
});
