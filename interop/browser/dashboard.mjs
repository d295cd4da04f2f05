// Checks of the live page on the admin port, under load; run.sh starts them.

import { createServer } from "node:net";
import { axe, check, every, expect, finish, hold, schemes, screens, serve, shot } from "./harness.mjs";

const freePort = () => new Promise((done) => {
  const listener = createServer().listen(0, "127.0.0.1", () => {
    const { port } = listener.address();
    listener.close(() => done(port));
  });
});
const admin = await freePort();
const server = await serve(["--host", "127.0.0.1", "--toolset", "demo"],
  { LONGSHORE_HTTP__ADMIN__PORT: String(admin), LONGSHORE_HTTP__ADMIN__HOST: "127.0.0.1", LONGSHORE_LIMITS__TOOLS__FAIL__CALLS: "1" });
const url = `http://127.0.0.1:${admin}/`;

const META = { "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": { name: "load", version: "1" }, "io.modelcontextprotocol/clientCapabilities": {} };
const call = (name, given) => fetch(`http://127.0.0.1:${server.port}/mcp`, { method: "POST",
  headers: { "content-type": "application/json", accept: "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name },
  body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: given, _meta: META } }) }).then((answer) => answer.text()).catch(() => {});
let isOver = false;
const load = (async () => {
  while (!isOver) {
    await Promise.all([call("echo", { message: "x" }), call("calculate", { operation: "add", a: 1, b: 2 }), call("fail", {}), call("no_such_tool", {})]);
    await new Promise((done) => setTimeout(done, 20));
  }
})();

const ready = (page) => page.waitForFunction(() => document.getElementById("state").textContent === "ready");
const number = async (page, title) => Number.parseFloat(await page.locator("figure", { hasText: title }).locator("strong").innerText());

await check("rates, latencies and failures are shown under load", url, every(screens, schemes).map((one) => ({ ...one, wait: false })), async (page) => {
  await ready(page);
  await page.waitForFunction(() => [...document.querySelectorAll("figure")].some((one) => /^Requests per second/.test(one.textContent) && Number.parseFloat(one.querySelector("strong").textContent) > 1));
  hold(await number(page, "Failures per second") > 0, "failures");
  const tools = await page.locator("table").first().innerText();
  for (const name of ["echo", "calculate", "fail", "unknown names"]) hold(tools.includes(name), `${name} is not in ${tools}`);
  const lines = await page.locator("figure polyline").count();
  hold(lines >= 8, `${lines} charts`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  hold(wide <= 0, `${wide} pixels too wide`);
  await axe(page, "dashboard");
  await shot(page, "dashboard", { fullPage: true });
});

await check("the page updates by itself, and can be paused", url, [{ wait: false }], async (page) => {
  await ready(page);
  const points = () => page.locator("figure polyline").first().getAttribute("points").then((text) => text.split(" ").length);
  const first = await points();
  await page.waitForFunction((first) => document.querySelector("figure polyline").getAttribute("points").split(" ").length > first, first);
  await page.getByRole("button", { name: "Pause" }).click();
  const before = page.requests.length;
  await page.waitForTimeout(2500);
  hold(page.requests.length - before <= 2, "no more requests than those that were under way");
  await page.getByRole("button", { name: "Continue" }).click();
  await page.waitForRequest(/metrics/);
  expect(page.requests.every((one) => one.method() === "GET"), true, "it only reads");
});

await check("a server that does not respond is told", url, [{ wait: false }], async (page) => {
  await ready(page);
  await page.route("**/metrics", (route) => route.fulfill({ status: 503, body: "" }));
  await page.waitForFunction(() => /no response: HTTP 503/.test(document.getElementById("state").textContent));
});

await check("other replicas are shown", url, every(screens).map((one) => ({ ...one, wait: false })), async (page) => {
  await page.route("**/health/detailed", async (route) => {
    const response = await route.fetch();
    const replica = { version: "0.1.0", config_generation: 3, uptime_seconds: 3700, seen_seconds_ago: 2 };
    const replicas = [{ ...replica, name: "web-b", draining: false }, { ...replica, name: "web-c", draining: true }];
    await route.fulfill({ response, json: { ...await response.json(), replicas } });
  });
  const rows = page.getByRole("region", { name: "Other replicas" }).locator("tbody tr");
  await rows.first().waitFor();
  expect(await rows.allInnerTexts().then((all) => all.map((one) => one.split("\t"))),
    [["web-b", "0.1.0", "serving", "3", "1 h 1 min", "2 s ago"], ["web-c", "0.1.0", "draining", "3", "1 h 1 min", "2 s ago"]]);
  await axe(page, "replicas");
});

isOver = true;
await load;
await finish();
