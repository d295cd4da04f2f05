// Checks of the playground; run.sh starts them.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { fakeOf, MANY, ODDITIES, SHAPES } from "./fake.mjs";
import { axe, call, check, choose, chosen, every, expect, field, finish, hold, isFocused, looks, result, revisions, schemes, screens, sent, serve, shot, verdict,
} from "./harness.mjs";

const KEY = "a-key-of-the-right-length-for-tests-0123456789";
const everything = await serve(["--host", "127.0.0.1", "--toolset", "everything"]);
const url = `http://127.0.0.1:${everything.port}/`;
const shapes = fakeOf(SHAPES);
const fake = (more) => more.map((one) => ({ ...one, fake: shapes }));
const argumentsOf = (page) => sent(page, "tools/call").params.arguments;

// --- The list ---

await check("the filter hides what does not match", url, every(screens).map((one) => ({ ...one, fake: fakeOf(MANY) })), async (page) => {
  await page.fill("#filter", "tool_49");
  const shown = await page.locator("nav a").evaluateAll((links) => links.filter((link) => link.getClientRects().length).length);
  expect(shown, 11, "shown");
  await shot(page, "filter");
  await page.fill("#filter", "no such tool");
  expect(await page.locator("nav h2").isVisible(), false, "heading");
});

await check("titles, descriptions and marks are in the list", url, fake(every(screens)), async (page) => {
  const text = (name) => page.locator(`nav a[href="#tool/${name}"]`).innerText();
  expect((await text("look")).split(/\s*\n\s*/), ["Look at it", "reads", "look", "Reads only."], "look");
  hold(/destroys/.test(await text("drop")), "drop destroys");
  hold(/changes/.test(await text("rename")), "rename changes");
  expect(await text("ship"), "ship", "no mark where nothing is said");
});

await check("the list is one stop for Tab, and the arrows go on", url, fake([{}]), async (page) => {
  await page.focus("#filter");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  expect((await isFocused(page)).text, "titles");
  await page.keyboard.press("Enter");
  await chosen(page, "tool/titles");
  await page.focus("#filter");
  await page.keyboard.press("Tab");
  expect((await isFocused(page)).text, "titles");
  await page.fill("#filter", "tree");
  await page.keyboard.press("Enter");
  await chosen(page, "tool/tree");
});

await check("an address names a tool, and Back goes back", `${url}#tool/weather`, every(screens, revisions), async (page) => {
  expect(await page.textContent("#shown h2"), "Weather reads");
  await field(page, "town").fill("Rome");
  await choose(page, "tool/echo");
  hold((await page.title()).startsWith("Echo"), "the title");
  await page.goBack();
  await chosen(page, "tool/weather");
  expect(await field(page, "town").inputValue(), "Rome", "what was filled in");
  await page.goto(`${url}#tool/gone`);
  await page.locator("#shown").filter({ hasText: "Nothing that is called tool/gone" }).waitFor();
  await page.goto(`${url}#resource/${encodeURIComponent("test://static-text")}`);
  await call(page);
  await verdict(page, "Read");
});

// --- Calling ---

const five = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"].map((revision) => ({ revision }));
await check("every revision connects and calls", url, five, async (page) => {
  await choose(page, "tool/weather");
  await field(page, "town").fill("Rome");
  await call(page);
  await verdict(page, "Succeeded");
});

await check("Enter in a field of one line calls", url, every(screens, revisions), async (page) => {
  await choose(page, "tool/weather");
  expect(await field(page, "town").evaluate((node) => node.localName), "input");
  await field(page, "town").fill("Rome");
  await field(page, "town").press("Enter");
  await verdict(page, "Succeeded");
  expect(argumentsOf(page), { town: "Rome", unit: "celsius" });
  await shot(page, "weather");
  hold((await page.locator("#shown .out pre").count()) === 1, "what is said twice is shown once");
});

await check("long texts have a field of several lines", url, fake(every(screens)), async (page) => {
  await choose(page, "tool/texts");
  const kind = async (label) => field(page, label).evaluate((node) => node.type);
  expect([await kind("town"), await kind("body"), await kind("long"), await kind("day"), await kind("key")],
    ["text", "textarea", "textarea", "date", "password"]);
  await page.getByRole("button", { name: "Several lines for town" }).click();
  await field(page, "town").fill("a\nb");
  await field(page, "body").press("Control+Enter");
  await verdict(page, "Succeeded");
  expect(argumentsOf(page), { town: "a\nb" });
});

await check("several lines that are pasted stay several", url, fake([{}]), async (page) => {
  await choose(page, "tool/texts");
  await page.evaluate(() => navigator.clipboard.writeText("one\ntwo"));
  await field(page, "town").press("Control+v");
  expect(await field(page, "town").inputValue(), "one\ntwo");
});

await check("text in a field does not look like a placeholder", url, fake(every(schemes)), async (page) => {
  await choose(page, "tool/order");
  const [typed, hint] = await page.locator("#shown textarea").first().evaluate((node) =>
    [getComputedStyle(node).color, getComputedStyle(node, "::placeholder").color]);
  hold(typed !== hint, `both are ${typed}`);
});

await check("what is required is marked, and checked before it is sent", url, fake(every(screens)), async (page) => {
  await choose(page, "tool/numbers");
  const before = page.requests.length;
  await call(page);
  expect((await page.locator("#shown .error:visible").allInnerTexts()), ["whole is required"]);
  hold(/whole/.test((await isFocused(page)).label), "the field has the focus");
  for (const [text, problem] of [["x", "This has to be a whole number"], ["1.5", "This has to be a whole number"], ["11", "This is too large, 0 to 10"], ["-1", "This is too small, 0 to 10"]]) {
    await field(page, "whole").fill(text);
    await call(page);
    expect((await page.locator("#shown .error:visible").allInnerTexts()), [problem], text);
  }
  expect(page.requests.length, before, "requests");
  await shot(page, "required");
  await field(page, "whole").fill("3");
  await field(page, "big").fill("9007199254740993");
  await call(page);
  await verdict(page, "Succeeded");
  hold(page.requests.at(-1).postData().includes('{"whole":3,"big":9007199254740993,"maybe":null}'), page.requests.at(-1).postData());
});

await check("an enumeration offers every variant", url, fake(every(screens, revisions)), async (page) => {
  await choose(page, "tool/ship");
  const status = field(page, "status");
  expect(await status.locator("option").allInnerTexts(), ["Choose", "paid", "shipped", "open"]);
  await status.selectOption("open");
  hold((await page.innerText("#shown form")).includes("Not paid yet."), "what is said of the variant");
  await call(page);
  await verdict(page, "Succeeded");
  expect(argumentsOf(page), { status: "open" });
});

await check("choices are called by their titles", url, fake([{}]), async (page) => {
  await choose(page, "tool/titles");
  expect(await field(page, "one").locator("option").allInnerTexts(), ["", "Red", "Green"]);
  await field(page, "one").selectOption("Green");
  await field(page, "old").selectOption("Second");
  await field(page, "number").selectOption("2");
  await page.getByLabel("Why").check();
  await call(page);
  await verdict(page, "Succeeded");
  expect(argumentsOf(page), { one: "g", old: "b", many: ["y"], number: 2 });
});

await check("objects and lists are forms, with JSON beside them", url, fake(every(screens)), async (page) => {
  await choose(page, "tool/order");
  await field(page, "name").fill("Ada");
  await field(page, "sku").fill("pen");
  await page.getByRole("button", { name: "Add an item" }).click();
  hold(/sku/.test((await isFocused(page)).label), "the new item has the focus");
  await page.keyboard.type("ink");
  await page.getByRole("button", { name: "Add address" }).click();
  await page.keyboard.type("Main street");
  await page.getByLabel("Form of payment").selectOption("cash");
  await shot(page, "nested", { fullPage: true });
  await axe(page, "nested");
  await call(page);
  await verdict(page, "Succeeded");
  const filled = { customer: { name: "Ada" }, items: [{ sku: "pen", count: 1 }, { sku: "ink", count: 1 }], address: { street: "Main street" }, payment: { kind: "cash" } };
  expect(argumentsOf(page), filled);
  await page.getByRole("button", { name: "Edit as JSON" }).click();
  const json = field(page, "Arguments");
  expect(JSON.parse(await json.inputValue()), filled);
  await json.fill("{");
  await call(page);
  hold(/not valid JSON/.test(await page.locator("#shown .error:visible").innerText()), "what is wrong with it");
  await json.fill(JSON.stringify({ ...filled, payment: { kind: "card", number: "1" }, more: 1 }));
  await page.getByRole("button", { name: "Edit as form" }).click();
  expect(await field(page, "number").inputValue(), "1", "the other alternative");
  await call(page);
  await verdict(page, "Succeeded");
  expect(argumentsOf(page), { ...filled, payment: { kind: "card", number: "1" }, more: 1 });
  await page.getByRole("button", { name: "Remove items 2" }).click();
  await page.getByRole("button", { name: "Leave out address" }).click();
  await field(page, "sku").fill("PEN");
  await call(page);
  expect(await page.locator("#shown .error:visible").allInnerTexts(), ["This does not match ^[a-z]+$"]);
});

await check("a type within itself has a form", url, fake([{}]), async (page) => {
  await choose(page, "tool/tree");
  await field(page, "label").fill("root");
  await page.getByRole("button", { name: "Add children" }).click();
  await page.keyboard.type("leaf");
  await call(page);
  await verdict(page, "Succeeded");
  expect(argumentsOf(page), { label: "root", children: [{ label: "leaf" }] });
});

await check("no schema keeps the form from being shown", url, [{ fake: fakeOf(ODDITIES) }], async (page) => {
  for (const { name } of ODDITIES) {
    await page.evaluate((key) => { location.hash = key; }, `tool/${encodeURIComponent(name)}`);
    await page.waitForFunction((name) => document.querySelector("#shown h2")?.textContent.trim() === name, name).catch(() => { throw new Error(`${name} is not shown: ${page.wrongs}`); });
    await page.evaluate(() => {
      const edit = [...document.querySelectorAll("#shown button")].find((one) => one.textContent === "Edit as JSON");
      edit?.click();
      edit?.click();
    });
    if (page.wrongs.length) throw new Error(`${name}: ${page.wrongs[0]}`);
  }
  expect(await page.locator("#shown b, #shown i, #shown img").count(), 0, "markup");
});

await check("the focus goes into the form", url, fake([{}]), async (page) => {
  await page.keyboard.press("Tab");
  expect((await isFocused(page)).text, "Skip to the form");
  await page.keyboard.press("Enter");
  expect((await isFocused(page)).id, "shown");
  await choose(page, "tool/texts");
  hold(/town/.test((await isFocused(page)).label), "the first field");
  await choose(page, "tool/look");
  expect((await isFocused(page)).text, "Call");
});

await check("a call can be copied as curl", url, every(screens, revisions), async (page) => {
  await choose(page, "tool/echo");
  await field(page, "message").fill("it's $HOME");
  await page.getByRole("button", { name: "Copy as curl" }).click();
  await verdict(page, "copied");
  const command = await page.evaluate(() => navigator.clipboard.readText());
  const answer = execFileSync("bash", ["-c", `${command} --silent`], { encoding: "utf8" });
  hold(answer.includes("it's $HOME"), `${command}\n${answer}`);
});

await check("the result of a long form is in sight", url, every(screens, revisions), async (page) => {
  await choose(page, "tool/json_schema_2020_12_tool");
  await page.getByRole("button", { name: "Add address" }).click();
  await field(page, "email").fill("ada@example.com");
  await call(page);
  await verdict(page, "Succeeded");
  const { bottom } = await page.locator("#shown .out pre, #shown .out p").last().evaluate((node) => node.getBoundingClientRect().toJSON());
  hold(bottom <= page.viewportSize().height, `${bottom} is below ${page.viewportSize().height}`);
});

await check("progress is a bar, and a call can be cancelled", url, every(screens, revisions), async (page) => {
  await choose(page, "tool/long_operation");
  await field(page, "seconds").fill("20");
  await field(page, "steps").fill("40");
  await call(page);
  await page.waitForFunction(() => document.querySelector("progress")?.value >= 1);
  await page.getByRole("button", { name: "Cancel" }).click();
  await verdict(page, "Cancelled");
  expect(await page.locator("#shown form .go").isDisabled(), false, "Call is disabled");
});

await check("a failure of the tool is told from a refusal", url, every(revisions), async (page) => {
  await choose(page, "tool/test_error_handling");
  await call(page);
  await verdict(page, "The tool says that it failed");
  await choose(page, "tool/primes");
  await page.getByRole("button", { name: "Edit as JSON" }).click();
  await field(page, "Arguments").fill('{"up_to": "x"}');
  await call(page);
  await page.waitForFunction(() => /up_to/.test(document.querySelector("#shown .out:last-of-type, #shown").textContent));
});

// --- Questions ---

await check("Cancel ends a call that asks", url, every(screens, revisions), async (page) => {
  await choose(page, "tool/test_elicitation");
  await field(page, "message").fill("Who are you?");
  await call(page);
  await page.locator("fieldset.question").waitFor();
  await shot(page, "question");
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await verdict(page, "Cancelled");
  expect(await page.locator("fieldset.question").count(), 0, "questions");
  expect(await page.locator("#shown form .go").isDisabled(), false, "Call is disabled");
  // The next one is not affected.
  await call(page);
  await page.locator("fieldset.question").waitFor();
  await page.getByRole("button", { name: "Decline" }).click();
  await verdict(page, "Succeeded");
});

await check("a question has the focus, is checked, and Enter answers it", url, every(screens, revisions), async (page) => {
  await choose(page, "tool/test_elicitation");
  await field(page, "message").fill("Who are you?");
  await call(page);
  await page.locator("fieldset.question").waitFor();
  const inQuestion = () => page.evaluate(() => document.activeElement.closest("fieldset.question") !== null);
  hold(await inQuestion(), "the focus is in the question");
  await axe(page, "question");
  await page.locator("fieldset.question input").first().press("Shift+Enter");
  await page.locator("fieldset.question textarea").fill("ada");
  for (const input of await page.locator("fieldset.question input").all()) await input.fill("ada@example.com");
  await page.keyboard.press("Enter");
  await verdict(page, "Succeeded");
  hold(/ada@example\.com/.test(await result(page)), await result(page));
});

await check("choices of a question have their titles and defaults", url, every(screens, revisions), async (page) => {
  await choose(page, "tool/test_elicitation_sep1330_enums");
  await call(page);
  await page.locator("fieldset.question").waitFor();
  hold(/First Option/.test(await page.locator("fieldset.question").innerText()), "titles");
  await shot(page, "choices", { fullPage: true });
  await page.getByRole("button", { name: "Decline" }).click();
  await verdict(page, "Succeeded");
  await choose(page, "tool/test_elicitation_sep1034_defaults");
  await call(page);
  await page.locator("fieldset.question").waitFor();
  await page.getByRole("button", { name: "Accept", exact: true }).click();
  await verdict(page, "Succeeded");
  hold(/John Doe/.test(await result(page)), await result(page));
});

await check("a page that the server asks for is opened", url, every(screens, revisions), async (page) => {
  await choose(page, "tool/visit_page");
  await field(page, "url").fill(`${url}health`);
  await call(page);
  const link = page.locator("fieldset.question a");
  await link.waitFor();
  expect(await link.getAttribute("href"), `${url}health`);
  expect(await link.innerText(), `Open ${new URL(url).host}`);
  await shot(page, "visit");
  const popup = page.context().waitForEvent("page");
  await link.click();
  expect((await popup).url(), `${url}health`);
  await verdict(page, "Succeeded");
  hold(/accept/.test(await result(page)), await result(page));
  await call(page);
  await page.getByRole("button", { name: "Decline" }).click();
  await verdict(page, "Succeeded");
  hold(/decline/.test(await result(page)), await result(page));
});

await check("a visit that is required first is offered", url, every(revisions), async (page) => {
  await choose(page, "tool/visit_first");
  await call(page);
  await page.locator("#shown .out a.button").first().waitFor();
});

await check("questions in rounds are answered one after the other", url, every(screens), async (page) => {
  await choose(page, "tool/test_input_required_result_multi_round");
  await call(page);
  for (let round = 0; round < 2; round++) {
    await page.locator("fieldset.question").waitFor();
    for (const input of await page.locator("fieldset.question input").all()) await input.fill("a");
    await page.getByRole("button", { name: "Accept", exact: true }).click();
  }
  await verdict(page, "Succeeded");
});

// --- What else is offered ---

await check("images, sounds, links, prompts and templates", url, every(screens, revisions), async (page, { screen }) => {
  await choose(page, "tool/test_image_content");
  await call(page);
  await verdict(page, "Succeeded");
  await page.waitForFunction(() => document.querySelector("#shown img")?.complete);
  const width = await page.locator("#shown img").evaluate((image) => image.naturalWidth);
  hold(width >= 32, `the picture is ${width} pixels wide`);
  await shot(page, "picture");
  await choose(page, "tool/test_audio_content");
  await call(page);
  await page.locator("#shown audio").waitFor();
  await choose(page, "tool/resource_links");
  await call(page);
  await page.locator("#shown .out a").first().click();
  await call(page);
  await verdict(page, "Read");
  if (screen === "phone") await page.click("#fold-offers");
  await page.fill("#filter", "prompt_with_arg");
  await choose(page, "prompt/test_prompt_with_arguments");
  await page.evaluate(() => { document.getElementById("filter").value = ""; filterOffers(); });
  await field(page, "arg1").fill("one");
  await field(page, "arg2").fill("two");
  await call(page);
  await verdict(page, "Got");
  await choose(page, `template/${encodeURIComponent("test://template/{id}/data")}`);
  await field(page, "id").fill("a b/c");
  await call(page);
  await page.locator("#shown .verdict.good, #shown .verdict.bad").waitFor();
  expect(sent(page, "resources/read").params.uri, "test://template/a%20b%2Fc/data");
});

// --- What a server asks beside forms, tasks, and what it tells by itself ---

await check("a model's answer is asked for, and can be declined", url, every(revisions), async (page) => {
  await choose(page, "tool/test_sampling");
  await field(page, "prompt").fill("Capital of France?");
  await call(page);
  const question = page.locator("fieldset.question");
  await question.waitFor();
  hold(/Capital of France\?/.test(await question.innerText()), await question.innerText());
  await axe(page, "sampling");
  await question.locator("textarea").fill("Paris");
  await question.getByRole("button", { name: "Accept" }).click();
  await verdict(page, "Succeeded");
  hold(/Paris/.test(await result(page)), await result(page));
  await call(page);
  await question.waitFor();
  await question.getByRole("button", { name: "Decline" }).click();
  await page.locator("#shown .verdict.bad").waitFor();
});

await check("roots are asked for", url, every(revisions), async (page) => {
  await choose(page, "tool/list_roots");
  await call(page);
  const question = page.locator("fieldset.question");
  await question.waitFor();
  await question.getByRole("button", { name: "Add an item" }).click();
  await question.locator("input").first().fill("file:///work");
  await question.getByRole("button", { name: "Accept" }).click();
  await verdict(page, "Succeeded");
  hold(/file:\/\/\/work/.test(await result(page)), await result(page));
});

await check("a task is waited for, asks, fails and is cancelled", url, every(revisions), async (page, { revision }) => {
  await choose(page, "tool/failing_job");
  await call(page);
  await page.locator("#shown .verdict.bad").waitFor();
  await choose(page, "tool/confirm_delete");
  for (const input of await page.locator("#shown form input").all()) await input.fill("a.txt");
  await call(page);
  await page.locator("fieldset.question").waitFor();
  for (const select of await page.locator("fieldset.question select").all()) await select.selectOption({ index: 1 });
  await page.getByRole("button", { name: "Accept", exact: true }).click();
  await verdict(page, "Succeeded");
  if (revision !== "2026-07-28") return;
  await choose(page, "tool/slow_compute");
  for (const input of await page.locator("#shown form input").all()) await input.fill("20");
  await call(page);
  await page.locator("#shown .out").filter({ hasText: "working" }).waitFor();
  await shot(page, "task");
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await verdict(page, "Cancelled");
  await page.waitForFunction(() => /tasks\/cancel/.test(document.getElementById("messages").textContent));
});

await check("values are suggested while they are typed", url, every(revisions), async (page) => {
  await choose(page, "prompt/introduce_colleague");
  const asked = page.waitForRequest((request) => /"name":"team","value":"e"/.test(request.postData() ?? ""));
  await field(page, "team").fill("e");
  await asked;
  await page.waitForFunction(() => [...document.querySelectorAll("#shown datalist option")].some((one) => one.value === "engineering"));
  // Suggestions for members depend on the team.
  await field(page, "team").fill("engineering");
  const inTeam = page.waitForRequest((request) => {
    const { method, params } = JSON.parse(request.postData() ?? "{}");
    return method === "completion/complete" && params.argument.name === "name" && params.context?.arguments.team === "engineering";
  });
  await field(page, "name").fill("A");
  await inTeam;
  await page.waitForFunction(() => [...document.querySelectorAll("#shown datalist option")].some((one) => one.value === "Alice"));
  // Arguments of a link count as typed.
  await page.goto("about:blank");
  await page.goto(`${url}#prompt/introduce_colleague?${encodeURIComponent('{"team":"sales"}')}`);
  await page.waitForFunction(() => document.querySelector("#shown form"));
  await field(page, "name").focus();
  await page.waitForFunction(() => [...document.querySelectorAll("#shown datalist option")].some((one) => one.value === "David"));
  hold(!await page.locator('#shown datalist option[value="Alice"]').count(), "names of other teams");
});

await check("changes of the lists are heard", url, every(revisions), async (page) => {
  const count = () => page.locator('#offers a[href^="#tool/"]').count();
  const before = await count();
  await choose(page, "tool/test_trigger_tool_change");
  await call(page);
  await verdict(page, "Succeeded");
  await page.waitForFunction(() => /lists changed/.test(document.getElementById("state").textContent));
  hold(Math.abs(await count() - before) <= 1, "the list was fetched again");
  await verdict(page, "Succeeded");
});

await check("what a result links to is there after a change of the lists", url, every(revisions), async (page) => {
  await choose(page, "tool/resource_links");
  await call(page);
  const link = page.locator("#shown .out a").first();
  const href = await link.getAttribute("href");
  await choose(page, "tool/test_trigger_tool_change");
  await call(page);
  await page.waitForFunction(() => /lists changed/.test(document.getElementById("state").textContent));
  expect(await page.locator(`#offers a[href="${href}"]`).count(), 0, "listed");
  await choose(page, "tool/resource_links");
  await link.click();
  await call(page);
  await verdict(page, "Read");
});

await check("another revision is spoken after a connection only", url, every(revisions), async (page, { revision }) => {
  await choose(page, "tool/weather");
  await page.evaluate(() => { document.getElementById("revision").value = "2025-06-18"; });
  await field(page, "town").fill("Rome");
  await call(page);
  await verdict(page, "Succeeded");
  expect(page.requests.at(-1).headers()["mcp-protocol-version"], revision);
});

// --- Looks ---

await check("the page looks as it did", url, every(screens, schemes).map((one) => ({ ...one, revision: "2026-07-28" })), async (page) => {
  await looks(page, "begin");
  await choose(page, "tool/weather");
  await field(page, "town").fill("Rome");
  await call(page);
  await verdict(page, "Succeeded");
  await looks(page, "weather");
  await choose(page, "tool/json_schema_2020_12_tool");
  await page.getByRole("button", { name: "Add address" }).click();
  await looks(page, "nested");
  await choose(page, "tool/test_elicitation");
  await field(page, "message").fill("Who are you?");
  await call(page);
  await page.locator("fieldset.question").waitFor();
  await looks(page, "question");
});

// --- History, links and programs ---

await check("a call is made again from the history, and changed", url, every(screens), async (page) => {
  await choose(page, "tool/echo");
  await field(page, "message").fill("first");
  await call(page);
  await verdict(page, "Succeeded");
  await choose(page, "tool/weather");
  expect(await page.textContent("#past-count"), "1");
  await page.click("footer > details:first-of-type > summary");
  await axe(page, "history");
  await page.getByRole("button", { name: "Edit Echo" }).click();
  await chosen(page, "tool/echo");
  expect(await field(page, "message").inputValue(), "first");
  await field(page, "message").fill("second");
  await call(page);
  await verdict(page, "Succeeded");
  await page.getByRole("button", { name: "Again Echo" }).last().click();
  await verdict(page, "Succeeded");
  expect(argumentsOf(page), { message: "first" });
  expect(await page.textContent("#past-count"), "3");
});

await check("a link carries the arguments", url, every(screens), async (page) => {
  await choose(page, "tool/weather");
  await field(page, "town").fill("São Paulo?");
  await page.getByRole("button", { name: "Copy link" }).click();
  await verdict(page, "copied");
  const link = await page.evaluate(() => navigator.clipboard.readText());
  await page.goto("about:blank");
  await page.goto(link);
  await page.waitForFunction(() => document.querySelector("#shown form"));
  expect(await field(page, "town").inputValue(), "São Paulo?");
  expect(new URL(page.url()).hash, "#tool/weather");
  expect(page.requests.filter((one) => /tools\/call/.test(one.postData() ?? "")).length, 0, "nothing is called by itself");
});

await check("a call can be copied as Python and as TypeScript", url, [{}], async (page) => {
  await choose(page, "tool/echo");
  await field(page, "message").fill("it's \"quoted\"\\ 🦀");
  const copied = async (what) => {
    await page.getByRole("button", { name: `Copy as ${what}` }).click();
    await verdict(page, "The program is copied");
    return page.evaluate(() => navigator.clipboard.readText());
  };
  const typescript = await copied("TypeScript");
  hold(typescript.includes("callTool({"), typescript);
  execFileSync(process.execPath, ["--input-type=module", "--check"], { input: typescript });
  await page.getByRole("button", { name: "Edit as JSON" }).click();
  await field(page, "Arguments").fill('{"message": "it\'s \\"quoted\\" 🦀", "more": [true, null, 1.5]}');
  const python = await copied("Python");
  hold(python.includes('call_tool("echo", {"message": "it\'s \\"quoted\\" 🦀", "more": [True, None, 1.5]})'), python);
});

await check("messages stand with their request, and can be filtered", url, [{}], async (page) => {
  await choose(page, "tool/echo");
  await field(page, "message").fill("needle");
  await call(page);
  await verdict(page, "Succeeded");
  await page.click("footer > details:last-of-type > summary");
  const last = page.locator("#messages > details").first();
  hold(/tools\/call.*HTTP 200/.test(await last.locator("summary").innerText()), await last.locator("summary").innerText());
  await page.fill("#sieve", "needle");
  expect(await page.locator("#messages > details:visible").count(), 1);
  await page.fill("#sieve", "");
  hold(await page.locator("#messages > details:visible").count() > 3, "all are back");
});

// --- Login ---

const TOKEN = "the-token-of-this-login";
const origin = new URL(url).origin;
const guard = (route) => route.request().headers().authorization === `Bearer ${TOKEN}` ? route.continue()
  : route.fulfill({ status: 401, contentType: "application/json", body: '{"jsonrpc":"2.0","id":null,"error":{"code":-32401,"message":"A credential is needed (401)"}}',
    headers: { "www-authenticate": `Bearer resource_metadata="${origin}/.well-known/oauth-protected-resource/mcp"` } });
await check("a login fetches a token, and the page is where it was", `${url}#tool/weather`, every(screens).map((one) => ({ ...one, wait: false, fake: guard })), async (page) => {
  const asked = {};
  const answer = (path, reply) => page.route(`${origin}${path}`, async (route) => {
    const request = route.request();
    asked[path.split("*")[0]] = request;
    await route.fulfill(await reply(request));
  });
  const json = (body) => ({ contentType: "application/json", body: JSON.stringify(body) });
  await answer("/.well-known/oauth-protected-resource/mcp", () => json({ resource: `${origin}/mcp`, authorization_servers: [origin], scopes_supported: ["a", "b"] }));
  await answer("/.well-known/oauth-authorization-server", () => json({ issuer: origin, authorization_endpoint: `${origin}/authorize`, token_endpoint: `${origin}/token`, registration_endpoint: `${origin}/register` }));
  await answer("/register", () => ({ status: 201, ...json({ client_id: "page" }) }));
  await answer("/authorize*", (request) => {
    const given = new URL(request.url()).searchParams;
    const back = `${given.get("redirect_uri")}?code=c&state=${given.get("state")}&iss=${encodeURIComponent(origin)}`;
    return { contentType: "text/html", body: `<link rel=icon href="data:,"><a id=back href="${back.replaceAll("&", "&amp;")}">Log in</a>` };
  });
  await answer("/token", () => json({ access_token: TOKEN, token_type: "Bearer" }));
  await page.waitForFunction(() => document.getElementById("state").textContent === "not connected");
  if (!await page.locator("#login").isVisible()) await page.click("#fold-connection");
  await axe(page, "login");
  await page.click("#login");
  await page.click("#back");
  await page.waitForFunction(() => /^connected/.test(document.getElementById("state")?.textContent));
  expect(new URL(page.url()).search, "", "the code is gone from the address");
  await chosen(page, "tool/weather");
  const authorized = new URL(asked["/authorize"].url()).searchParams;
  expect(authorized.get("scope"), "a b");
  expect(authorized.get("resource"), `${origin}/mcp`);
  const redeemed = new URLSearchParams(asked["/token"].postData());
  const digest = createHash("sha256").update(redeemed.get("code_verifier")).digest("base64url");
  expect(authorized.get("code_challenge"), digest);
  expect(await page.evaluate(() => Object.keys(sessionStorage).length), 0, "nothing is kept");
});

// --- How it looks ---

await check("nothing is wider than the screen, and the form has room", url, every(screens, schemes), async (page, { screen }) => {
  const widths = () => page.evaluate(() => ({ page: document.documentElement.scrollWidth, window: innerWidth,
    field: document.querySelector("#shown form input, #shown form select")?.getBoundingClientRect().width }));
  await shot(page, "home");
  if (screen === "phone") {
    await page.click("#fold-connection");
    await axe(page, "connection");
    await page.click("#fold-connection");
    hold(await page.locator("nav").isVisible(), "the list is there to begin with");
  }
  for (const key of ["tool/weather", "tool/run_query", "tool/json_schema_2020_12_tool"]) {
    await choose(page, key);
    const { page: wide, window, field } = await widths();
    hold(wide <= window, `${key}: ${wide} of ${window} pixels`);
    hold(field >= 250, `${key}: a field of ${field} pixels`);
    if (screen === "phone") {
      hold(!await page.locator("nav").isVisible(), "the list is folded");
      await page.click("#fold-offers");
      await page.locator(`nav a[href="#${key}"]`).click();
      hold(!await page.locator("nav").isVisible(), "the list is folded again");
    }
    await axe(page, key);
    await shot(page, key.replace("tool/", "form-"), { fullPage: true });
  }
});

await check("axe finds nothing", url, every(screens, schemes, revisions), async (page) => {
  await axe(page, "home");
  await choose(page, "tool/test_multiple_content_types");
  await call(page);
  await verdict(page, "Succeeded");
  await axe(page, "result");
  await choose(page, "tool/test_elicitation_sep1330_enums");
  await call(page);
  await page.locator("fieldset.question").waitFor();
  await axe(page, "question");
  await page.getByRole("button", { name: "Dismiss" }).click();
  await choose(page, "tool/primes");
  await call(page);
  await axe(page, "problem");
  await page.click("footer > details:last-of-type > summary");
  await page.locator("#messages summary").first().click();
  await axe(page, "messages");
  await shot(page, "messages");
  await page.click("#clear");
  expect(await page.textContent("#count"), "0");
});

// --- Where it is served ---

const guarded = await serve(["--host", "127.0.0.1", "--toolset", "demo"], { LONGSHORE_AUTH__API_KEYS: `tests=${KEY}` });
await check("a key connects, with Enter", `http://127.0.0.1:${guarded.port}/`, every(screens, revisions).map((one) => ({ ...one, wait: false })), async (page) => {
  await page.waitForFunction(() => document.getElementById("state").textContent === "not connected");
  await shot(page, "no-key");
  if (!await page.locator("#token").isVisible()) await page.click("#fold-connection");
  await page.fill("#token", KEY);
  await page.press("#token", "Enter");
  await page.waitForFunction(() => /^connected/.test(document.getElementById("state").textContent));
  await axe(page, "connected");
});

const beyond = await serve(["--host", "0.0.0.0", "--insecure", "--inspect=true", "--toolset", "demo"]);
for (const host of ["localhost", "127.0.0.1"]) {
  await check(`what listens on every address is used at ${host}`, `http://${host}:${beyond.port}/`, every(screens, revisions), async (page) => {
    await choose(page, "tool/echo");
    await field(page, "message").fill("hello");
    await call(page);
    await verdict(page, "Succeeded");
  });
}
await check("under a name that nobody has configured the page says what to do", `http://mcp.localhost:${beyond.port}/`, [{ wait: false }], async (page) => {
  await page.waitForFunction(() => document.querySelector("#shown .bad"));
  hold(/http\.allowed_hosts/.test(await page.innerText("#shown")), await page.innerText("#shown"));
});

await finish();
