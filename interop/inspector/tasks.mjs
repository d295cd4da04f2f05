// Ten tasks in the playground and in Inspector's web interface: how many actions each takes, and whether it worked.
//
// An action is what a person does with one hand movement: a click, a text that is typed into a field, a choice in a list, a key. Finding the
// place on the screen is not counted. Both begin connected, with nothing chosen; each task begins with a fresh page.
import { readFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [playground, inspector, version, browserPath, folder, page] = process.argv.slice(2);
const FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync";
mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({ executablePath: browserPath, args: FLAGS.split(" ") });

/** A person at a page: counts what they do. */
class Person {
  constructor(page) {
    this.page = page;
    this.actions = 0;
  }
  async click(locator) {
    this.actions++;
    await locator.first().click();
  }
  async type(locator, text) {
    this.actions++;
    await locator.first().fill(text);
  }
  async press(key) {
    this.actions++;
    await this.page.keyboard.press(key);
  }
  async sees(text) {
    await this.page.getByText(text).first().waitFor();
  }
}

class Impossible extends Error {}

const own = {
  name: "playground",
  async open() {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    const page = await context.newPage();
    page.setDefaultTimeout(6_000);
    await page.goto(playground);
    await page.waitForFunction(() => /^connected/.test(document.getElementById("state").textContent));
    return page;
  },
  find: (p) => ({ filter: p.page.locator("#filter"), tool: (name) => p.page.locator(`nav a[href="#tool/${name}"]`) }),
  field: (p, label) => p.page.locator("#shown").getByLabel(label, { exact: false }),
  go: (p) => p.page.locator("#shown form .go"),
};
const theirs = {
  name: "Inspector",
  async open() {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    const page = await context.newPage();
    page.setDefaultTimeout(6_000);
    await page.goto(inspector);
    const toggle = page.getByRole("switch", { name: /Connect or disconnect/ });
    await toggle.waitFor({ state: "attached" });
    if (!(await toggle.isChecked())) await toggle.locator("xpath=..").click();
    await page.locator("label", { hasText: /^Tools$/ }).first().click();
    await page.getByText(/^Tools \(\d+\)/).waitFor();
    return page;
  },
  find: (p) => ({ filter: p.page.getByPlaceholder("Search tools..."), tool: (name) => p.page.locator("button", { hasText: name }) }),
  field: (p, label) => p.page.locator(`xpath=//label[starts-with(normalize-space(.), "${label}")]/following::input[1]`),
  go: (p) => p.page.getByRole("button", { name: "Execute Tool" }),
};

/** Opens a tool as a person who knows its name: types it into the search, and chooses it. */
async function choose(ui, p, name) {
  const { filter, tool } = ui.find(p);
  await p.type(filter, name);
  await p.click(tool(name));
}

const tasks = [
  ["Find one of 550 tools by a word of its description", async (ui, p) => {
    const { filter, tool } = ui.find(p);
    await p.type(filter, "overdue");
    if (!(await tool("report_417").first().isVisible().catch(() => false))) await p.page.waitForTimeout(800);
    if (!(await tool("report_417").first().isVisible())) throw new Impossible("the search reads names and titles only");
    await p.click(tool("report_417"));
    await p.sees("Invoices that are overdue");
  }],
  ["Fill in a nested form, and call", async (ui, p) => {
    await choose(ui, p, "json_schema_2020_12_tool");
    // An optional object is left out until it is added.
    if (ui === own) await p.click(p.page.getByRole("button", { name: "Add address" }));
    await p.type(ui.field(p, "street"), "Main Street 1");
    await p.type(ui.field(p, "city"), "Rome");
    await p.type(ui.field(p, "email"), "ada@example.com");
    await p.click(ui.go(p));
    await p.sees("json_schema_2020_12_tool called");
  }],
  ["Learn what is missing before anything is sent", async (ui, p) => {
    await choose(ui, p, "weather");
    if (ui === theirs) {
      await p.sees("town *");
      // The field has a star, and the button is disabled; it does not say why.
      if (await ui.go(p).isEnabled()) throw new Impossible("it is sent");
      return;
    }
    await p.click(ui.go(p));
    await p.sees("town is required");
  }],
  ["Choose a value of an enumeration, and call", async (ui, p) => {
    await choose(ui, p, "weather");
    await p.type(ui.field(p, "town"), "Rome");
    if (ui === own) {
      p.actions++;
      await ui.field(p, "unit").first().selectOption({ label: "fahrenheit" });
    } else {
      await p.click(ui.field(p, "unit"));
      await p.click(p.page.getByRole("option", { name: "fahrenheit" }));
    }
    await p.click(ui.go(p));
    await p.sees(/°F|fahrenheit"/);
  }],
  ["Fill in a form that a tool sends (elicitation)", async (ui, p) => {
    await choose(ui, p, "test_elicitation");
    await p.type(ui.field(p, "message"), "Who are you?");
    await p.click(ui.go(p));
    if (ui === own) {
      await p.page.locator("fieldset.question").waitFor();
      await p.type(p.page.locator("fieldset.question textarea, fieldset.question input:not([type=email])"), "ada");
      await p.type(p.page.locator("fieldset.question").getByLabel("email", { exact: false }), "ada@example.com");
      await p.press("Enter");
    } else {
      await p.sees("Elicitation Request");
      await p.type(ui.field(p, "username"), "ada");
      await p.type(ui.field(p, "email"), "ada@example.com");
      await p.click(p.page.getByRole("button", { name: "Submit" }));
    }
    await p.sees(/action=accept/);
  }],
  ["See progress of a long call, and cancel it", async (ui, p) => {
    await choose(ui, p, "long_operation");
    await p.click(ui.go(p));
    await p.sees(/step 1 of 5/);
    await p.click(p.page.getByRole("button", { name: "Cancel", exact: true }));
    await p.sees(/cancelled/i);
  }],
  ["Copy a call as a curl command", async (ui, p) => {
    await choose(ui, p, "echo");
    await p.type(ui.field(p, "message"), "hello");
    if (ui === theirs) throw new Impossible("it is not offered");
    await p.click(p.page.getByRole("button", { name: "Copy as curl" }));
    await p.sees("copied");
  }],
  ["Change an earlier call, and make it again", async (ui, p) => {
    await choose(ui, p, "echo");
    await p.type(ui.field(p, "message"), "first");
    await p.click(ui.go(p));
    await (ui === own ? p.page.locator("#shown .out") : p.page.getByText("Results")).filter({ visible: true }).first().waitFor();
    await choose(ui, p, "weather");
    p.actions = 0;
    if (ui === own) {
      await p.click(p.page.locator("footer > details:first-of-type > summary"));
      await p.click(p.page.getByRole("button", { name: "Edit Echo" }));
      await p.type(ui.field(p, "message"), "second");
      await p.click(ui.go(p));
    } else {
      await p.click(p.page.locator("label", { hasText: /^Protocol$/ }));
      await p.click(p.page.getByRole("button", { name: "Edit and replay" }));
      const dialog = p.page.getByRole("dialog");
      await dialog.first().waitFor();
      // An editor of its own kind: typing into it counts as one action, like typing into a field.
      await dialog.locator(".ace_content").first().click();
      await p.page.keyboard.press("Control+a");
      p.actions++;
      await p.page.keyboard.insertText('{"name": "echo", "arguments": {"message": "second"}}');
      await p.click(dialog.getByRole("button", { name: /replay|send/i }));
      await p.page.getByText("TOOLS/CALL").nth(1).waitFor();
      await p.click(p.page.getByRole("button", { name: "Expand", exact: true }));
    }
    await p.page.getByText("second").filter({ visible: true }).first().waitFor();
  }],
  ["Read a resource by its template", async (ui, p) => {
    if (ui === own) {
      await p.type(ui.find(p).filter, "template");
      await p.click(p.page.locator(`nav a[href="#template/${encodeURIComponent("test://template/{id}/data")}"]`));
      await p.type(ui.field(p, "id"), "42");
      await p.click(ui.go(p));
    } else {
      await p.click(p.page.locator("label", { hasText: /^Resources$/ }));
      await p.click(p.page.getByText("Resource Template"));
      await p.type(ui.field(p, "id"), "42");
      await p.click(p.page.getByRole("button", { name: /read/i }));
    }
    await p.sees(/test:\/\/template\/42\/data|templateTest/);
  }],
  ["Send a colleague a link that opens a tool with its arguments", async (ui, p) => {
    await choose(ui, p, "weather");
    await p.type(ui.field(p, "town"), "Rome");
    if (ui === theirs) throw new Impossible("the address of the page stays the same");
    await p.click(p.page.getByRole("button", { name: "Copy link" }));
    await p.sees("copied");
  }],
];

const rows = [];
for (const [number, [what, run]] of tasks.entries()) {
  const row = { what };
  for (const ui of [own, theirs]) {
    const tab = await ui.open();
    const person = new Person(tab);
    try {
      await run(ui, person);
      row[ui.name] = `${person.actions}`;
    } catch (error) {
      if (!(error instanceof Impossible)) console.error(`${what}, ${ui.name}: ${error.message.slice(0, 400)}`);
      row[ui.name] = error instanceof Impossible ? `no: ${error.message}` : "FAILED";
    }
    await tab.screenshot({ path: join(folder, `${number + 1}-${ui.name.toLowerCase()}.jpg`), type: "jpeg", quality: 32 });
    await tab.context().close();
  }
  rows.push(row);
  console.error(`${number + 1}. ${what}: ${row.playground}; ${row.Inspector}`);
}
await browser.close();

let table = `| Task | Playground | Inspector ${version} | Images |\n|---|---|---|---|\n`;
for (const [number, row] of rows.entries()) {
  const images = ["playground", "inspector"].map((name) => `[${name}](images/${number + 1}-${name}.jpg)`).join(", ");
  table += `| ${row.what} | ${row.playground} | ${row.Inspector} | ${images} |\n`;
}
console.log(table);
if (page) {
  const text = readFileSync(page, "utf8");
  const [begin, end] = ["<!-- tasks -->\n", "<!-- end of tasks -->"];
  writeFileSync(page, `${text.slice(0, text.indexOf(begin) + begin.length)}\n${table}\n${text.slice(text.indexOf(end))}`);
}
const worked = (name) => rows.filter((row) => /^\d/.test(row[name])).length;
console.log(`${worked("playground")} of ${rows.length} tasks in the playground, ${worked("Inspector")} in Inspector`);
process.exit(rows.some((row) => !/^\d/.test(row.playground) || row.Inspector === "FAILED") ? 1 : 0);
