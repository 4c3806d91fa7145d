// docs/images: the HTML report of examples/, in light and dark, on a desktop and on a phone, and the pages of a job and of a sweep.
//
//   make screenshots        (PATH has a Python with PyTorch; GPUCAST_BIN, GPUCAST_MODULES as in harness.mjs)
import { execFileSync } from "node:child_process";
import { mkdirSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { close, exportHtml, folder, inputOf, jobHtml, open, root, settle } from "./harness.mjs";

const out = resolve(process.argv[2] ?? join(root, "docs/images"));
const gpucast = resolve(process.env.GPUCAST_BIN ?? join(root, "build/release/bin/gpucast"));

function capture(name, gpu, script, ...options) {
  const path = join(folder, `${name}.gpucast`);
  // The answer may be that it does not fit: exit code 1, and a capture all the same.
  try {
    execFileSync(gpucast, ["run", "--gpu", gpu, "--steps", "3", "-o", path, "--", "python", script, ...options], { cwd: root, stdio: "ignore" });
  } catch (error) {
    if (error.status !== 1) throw error;
  }
  return exportHtml(path);
}

// The largest block alive at the peak that `filter` (a function of the page) accepts.
const select = (page, filter) =>
  page.evaluate(`(() => {
    const { report, model, set, flush } = window.gpucast;
    const blocks = Array.from(model.alive(report.peak)).filter((b) => (${filter})(report.block.kind[b], model, report));
    set({ block: blocks.sort((a, b) => model.sizeOf(b) - model.sizeOf(a))[0] ?? -1 });
    flush();
    // Not where the repository lies on this machine.
    for (const line of document.querySelectorAll("#stack span")) line.textContent = line.textContent.replace(${JSON.stringify(`${root}/`)}, "");
  })()`);

async function shoot(file, name, { clip, ...options }, prepare) {
  const { page, problems, done } = await open(file, options);
  await prepare?.(page);
  await settle(page);
  const path = join(out, `${name}.png`);
  await page.screenshot({ path, ...(clip ? { clip } : {}) });
  await done();
  if (problems.length > 0) throw new Error(problems.join("\n"));
  console.log(`${name}.png: ${(statSync(path).size / 1024).toFixed(0)} KiB`);
}

mkdirSync(out, { recursive: true });
const resnet = capture("resnet50", "rtx3060", "examples/train_resnet50.py", "--batch", "32");
const gpt = capture("gpt", "rtx3060", "examples/train_gpt.py");

await shoot(resnet, "html-report-light", { width: 1360, height: 1180 });
await shoot(gpt, "html-report-dark", { width: 1360, height: 1180, dark: true }, (page) => select(page, "(kind, model) => model.moduleOf(kind).startsWith('head')"));
await shoot(gpt, "html-report-modules", { width: 1360, height: 760 }, async (page) => {
  await select(page, "(kind, model) => model.moduleOf(kind).startsWith('blocks.3')");
  await page.locator("#icicle-card").scrollIntoViewIfNeeded();
  await page.evaluate(() => document.getElementById("icicle-card").scrollIntoView());
});
await shoot(resnet, "html-report-phone", { width: 390, height: 844, touch: true });
await shoot(gpt, "html-report-phone-dark", { width: 390, height: 844, touch: true, dark: true }, (page) => page.evaluate(() => document.getElementById("curve-card").scrollIntoView()));
const { file: job } = jobHtml(["time_job", "time_job_one_stage"].map(inputOf), ["--gpu", "a100-80", "--cpu-speed", "100"]);
await shoot(job, "job-page", { width: 1360, height: 700 });
const spec = join(folder, "sweep.json");
const vary = { "--batch": [1024, 4096, 16384, 65536], "--hidden": { from: 2048, to: 16384, times: 2 }, "--layers": [3, 6] };
const gpus = ["rtx3060", "rtx3090", "a100-80"];
writeFileSync(spec, JSON.stringify({ command: "python examples/train_mlp.py", vary, exclude: "--hidden >= 16384 and --batch >= 65536", gpus }));
execFileSync(gpucast, ["sweep", spec, "-o", join(folder, "sweep")], { cwd: root, stdio: "ignore" });
await shoot(join(folder, "sweep/index.html"), "sweep-page", { width: 1180, height: 1360 }, (page) => page.evaluate(() => (document.getElementById("title").textContent = "sweep.yaml")));
await close();
