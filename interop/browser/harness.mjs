// What the checks share: servers, pages, and the count of what passed.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync";
export const STATELESS = "2026-07-28";
export const HANDSHAKE = "2025-11-25";
export const REVISIONS = [STATELESS, HANDSHAKE];
export const SCREENS = {
  desktop: { viewport: { width: 1280, height: 800 } },
  phone: { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 },
};

export const options = { server: "", chromium: "", page: "", screenshots: "", images: "", accept: false, quick: false, words: [] };
const given = process.argv.slice(2);
while (given.length) {
  const word = given.shift();
  if (word === "--quick") options.quick = true;
  else if (word === "--accept") options.accept = true;
  else if (word.startsWith("--")) options[word.slice(2)] = given.shift();
  else options.words.push(word);
}
if (options.screenshots) mkdirSync(options.screenshots, { recursive: true });

// --- Servers ---

const children = [];
/// Starts the program, and says where it listens.
export function serve(flags, settings = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(options.server, ["run", "--port", "0", ...flags], { stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, NO_COLOR: "1", LONGSHORE_LOG: "info", ...settings } });
    children.push(child);
    let log = "";
    const read = (text) => {
      log += text;
      const found = /"(?:url":"|)http:\/\/[^"]*?:(\d+)\/mcp"/.exec(log);
      if (found) resolve({ port: Number(found[1]), log: () => log });
    };
    child.stdout.setEncoding("utf8").on("data", read);
    child.stderr.setEncoding("utf8").on("data", read);
    child.on("exit", (code) => reject(new Error(`the server ended with ${code}: ${log}`)));
    setTimeout(() => reject(new Error(`the server does not listen: ${log}`)), 20_000).unref();
  });
}

// --- Pages ---

let browser;
/// A page of its own in the browser, which notes what must not happen.
export async function open(url, { screen = "desktop", scheme = "light", revision, fake, token, wait = true } = {}) {
  browser ??= await chromium.launch({ executablePath: options.chromium, args: FLAGS.split(" "), headless: true });
  const context = await browser.newContext({ ...SCREENS[screen], colorScheme: scheme });
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const page = await context.newPage();
  page.wrongs = [];
  page.requests = [];
  page.setDefaultTimeout(5_000);
  page.on("pageerror", (error) => page.wrongs.push(`exception: ${error.message}`));
  page.on("console", (message) => {
    // Rejected requests are reported there too; some checks expect them.
    const isRefusal = /the server responded with a status of \d+/.test(message.text());
    if (["error", "warning"].includes(message.type()) && !isRefusal) page.wrongs.push(`console: ${message.text()}`);
  });
  page.on("request", (request) => {
    page.requests.push(request);
    const { origin, protocol } = new URL(request.url());
    if (protocol !== "data:" && origin !== new URL(url).origin) page.wrongs.push(`request to ${request.url()}`);
  });
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
  });
  const { pathname, origin } = new URL(url);
  if (options.page) {
    await page.route((one) => one.origin === origin && one.pathname === pathname, (route) => route.fulfill({ contentType: "text/html; charset=utf-8", ...served(readFileSync(options.page, "utf8")) }));
  }
  if (fake) await page.route(`${origin}/mcp`, (route) => fake(route));
  // Before the page's own start, so that it connects once.
  if (revision || token) {
    await page.addInitScript(({ revision, token }) => {
      const seen = new MutationObserver(() => {
        const field = document.getElementById("token");
        if (!field || !document.getElementById("connect")) return;
        seen.disconnect();
        if (revision) document.getElementById("revision").value = revision;
        if (token) field.value = token;
      });
      seen.observe(document, { childList: true, subtree: true });
    }, { revision, token });
  }
  page.screen = screen;
  page.tag = [screen, scheme === "dark" ? "dark" : "", revision ?? ""].filter(Boolean).join("-");
  await page.goto(url);
  if (wait) await page.waitForFunction(() => /^connected/.test(document.getElementById("state").textContent));
  if (wait && revision) expect(await page.textContent("#state"), `connected · ${revision}`);
  return page;
}

/// The page from a file, with the policy that the program would send.
function served(body) {
  const digest = (tag) => createHash("sha256").update(body.split(`<${tag}>`)[1].split(`</${tag}>`)[0]).digest("base64");
  return { body, headers: { "content-security-policy": `default-src 'none'; script-src 'sha256-${digest("script")}'; style-src 'sha256-${digest("style")}'; `
    + "connect-src 'self'; img-src data:; media-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" } };
}

/// Chooses what is offered, as a person does: on a phone the list is unfolded first.
export async function choose(page, key) {
  const link = page.locator(`nav a[href="#${key}"]`);
  if (!await link.isVisible() && page.screen === "phone") await page.click("#fold-offers");
  await link.click();
  await chosen(page, key);
}

/// Waits until the page shows what its address names: the address changes before the page does.
export const chosen = (page, key) => page.waitForFunction((key) => location.hash === `#${key}`
  && document.querySelector(`nav a[href="#${key}"]`)?.ariaCurrent === "page", key);

export const field = (page, label) => page.locator("#shown").getByLabel(label, { exact: false }).first();
export const call = (page) => page.locator("#shown form .go").click();
export const verdict = (page, words) => page.locator("#shown .verdict").filter({ hasText: words }).waitFor();
export const result = async (page) => (await page.locator("#shown .out").allInnerTexts()).join("\n");
/// The last request of a method, as it went out.
export const sent = (page, method) => page.requests.map((request) => {
  try { return JSON.parse(request.postData() ?? "null"); } catch { return null; }
}).filter((message) => message?.method === method).at(-1);
export const shot = async (page, name, more = {}) => {
  if (options.screenshots) await page.screenshot({ path: join(options.screenshots, `${name}-${page.tag}.png`), ...more });
};

/// Cells of an image that are compared, and by how much a cell may differ: fonts differ between machines, layouts must not.
const CELLS = { wide: 32, high: 40, levels: 26, share: 0.04 };
let canvas;
/// Compares what is seen with the image of an earlier run. `--accept` replaces that image.
export async function looks(page, name) {
  const file = join(options.images, `${name}-${page.tag}.png`);
  const data = (bytes) => `data:image/png;base64,${bytes.toString("base64")}`;
  const now = await page.screenshot({ animations: "disabled", caret: "hide", scale: "css" });
  canvas ??= await browser.newPage();
  const draw = (url, wide, high) => canvas.evaluate(async ([url, wide, high]) => {
    const image = new Image();
    image.src = url;
    await image.decode();
    const [width, height] = [wide, high ?? Math.round(image.height * wide / image.width)];
    const drawn = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
    drawn.imageSmoothingQuality = "high";
    drawn.drawImage(image, 0, 0, width, height);
    const { data } = drawn.getImageData(0, 0, width, height);
    return { url: drawn.canvas.toDataURL("image/png"), greys: Array.from({ length: width * height }, (_, at) => (data[at * 4] + data[at * 4 + 1] + data[at * 4 + 2]) / 3) };
  }, [url, wide, high]);
  const kept = await draw(data(now), page.screen === "phone" ? 180 : 360);
  if (options.accept) {
    mkdirSync(options.images, { recursive: true });
    writeFileSync(file, Buffer.from(kept.url.split(",")[1], "base64"));
    return;
  }
  hold(existsSync(file), `there is no ${file}; --accept makes it`);
  const [one, other] = [await draw(kept.url, CELLS.wide, CELLS.high), await draw(data(readFileSync(file)), CELLS.wide, CELLS.high)];
  const differ = one.greys.filter((grey, at) => Math.abs(grey - other.greys[at]) > CELLS.levels).length / one.greys.length;
  if (differ > CELLS.share) await shot(page, `changed-${name}`);
  hold(differ <= CELLS.share, `${(differ * 100).toFixed(1)} % of ${name} looks otherwise than in ${file}; if that is meant, run with --accept`);
}

/// What axe finds.
export async function axe(page, where) {
  // The script is put into the page past its policy, as an extension would.
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: AXE });
  const found = await page.evaluate(async () => (await globalThis.axe.run(document, { resultTypes: ["violations"] })).violations
    .map((one) => `${one.id}: ${one.nodes.map((node) => `${node.target.join(" ")} ${node.any.map((any) => any.message).join("; ")}`).slice(0, 3).join(" | ")}`));
  await session.detach();
  if (found.length) throw new Error(`axe, ${where}: ${found.join("\n")}`);
}

export const isFocused = (page) => page.evaluate(() => {
  const node = document.activeElement;
  return { id: node.id, name: node.localName, text: node.textContent?.trim(), label: node.labels?.[0]?.textContent };
});

// --- The count ---

export function expect(found, wanted, what = "value") {
  const [one, other] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (one !== other) throw new Error(`${what}: ${one} instead of ${other}`);
}
export function hold(condition, what) {
  if (!condition) throw new Error(what);
}

const counts = { passed: 0, failed: 0, skipped: 0 };
/// Runs a check with a page of its own for each of the circumstances.
export async function check(name, url, circumstances, run) {
  if (options.words.length && !options.words.some((word) => name.includes(word))) return;
  // The first and the last differ in everything: screen, scheme and revision.
  const chosen = options.quick ? [...new Set([circumstances[0], circumstances.at(-1)])] : circumstances;
  for (const how of chosen) {
    const title = `${name} (${[how.screen ?? "desktop", how.scheme, how.revision].filter(Boolean).join(", ")})`;
    let page;
    try {
      page = await open(url, how);
      await run(page, how);
      if (page.wrongs.length) throw new Error(page.wrongs.join("\n"));
      counts.passed++;
      console.log(`PASS ${title}`);
    } catch (error) {
      counts.failed++;
      console.log(`FAIL ${title}: ${error.message}`);
      if (page) {
        for (const wrong of page.wrongs) console.log(`     | ${wrong}`);
        await shot(page, `failed-${name.replace(/\W+/g, "-")}`).catch(() => {});
      }
    } finally {
      await page?.context().close();
    }
  }
}
export const every = (...axes) => axes.reduce((rows, axis) => rows.flatMap((row) => axis.map((one) => ({ ...row, ...one }))), [{}]);
export const revisions = REVISIONS.map((revision) => ({ revision }));
export const screens = Object.keys(SCREENS).map((screen) => ({ screen }));
export const schemes = ["light", "dark"].map((scheme) => ({ scheme }));

export async function finish() {
  await browser?.close();
  for (const child of children) {
    child.removeAllListeners("exit");
    child.kill();
  }
  console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
  process.exit(counts.failed ? 1 : counts.passed ? 0 : 2);
}
