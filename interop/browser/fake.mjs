// A server within the browser's network layer, for what no toolset offers: schemas of many kinds, and hundreds of tools.

import { HANDSHAKE, STATELESS } from "./harness.mjs";

/// Serves these tools at the endpoint; each result contains the arguments.
export const fakeOf = (tools) => async (route) => {
  const request = route.request();
  if (request.method() !== "POST") return route.fulfill({ status: 200, body: "" });
  const { id, method, params } = JSON.parse(request.postData());
  if (id === undefined) return route.fulfill({ status: 202, body: "" });
  const serverInfo = { name: "fake", version: "1" };
  const results = {
    "server/discover": { supportedVersions: [STATELESS], capabilities: { tools: {} }, serverInfo },
    initialize: { protocolVersion: HANDSHAKE, capabilities: { tools: {} }, serverInfo },
    "tools/list": { tools },
    "tools/call": { content: [{ type: "text", text: `called ${params?.name}` }] },
  };
  return route.fulfill({ contentType: "application/json", body: JSON.stringify({ jsonrpc: "2.0", id, result: { resultType: "complete", ...results[method] } }) });
};

const object = (properties, required = [], more = {}) => ({ type: "object", properties, required, additionalProperties: false, ...more });
const tool = (name, inputSchema, more = {}) => ({ name, inputSchema, ...more });

export const SHAPES = [
  // What `schemars` makes of an enum some of whose variants have documentation.
  tool("ship", object({ status: { oneOf: [{ type: "string", enum: ["paid", "shipped"] }, { type: "string", const: "open", description: "Not paid yet." }] } }, ["status"])),
  tool("titles", object({
    one: { type: "string", oneOf: [{ const: "r", title: "Red" }, { const: "g", title: "Green" }] },
    old: { type: "string", enum: ["a", "b"], enumNames: ["First", "Second"] },
    many: { type: "array", items: { anyOf: [{ const: "x", title: "Ex" }, { const: "y", title: "Why" }] } },
    number: { enum: [1, 2] },
  })),
  tool("order", object({
    customer: { $ref: "#/$defs/Customer", description: "Who orders." },
    items: { type: "array", minItems: 1, items: { $ref: "#/$defs/Item" } },
    note: { anyOf: [{ type: "string" }, { type: "null" }] },
    address: { anyOf: [{ $ref: "#/$defs/Address" }, { type: "null" }] },
    payment: { oneOf: [object({ kind: { const: "card" }, number: { type: "string" } }, ["kind", "number"]), object({ kind: { const: "cash" } }, ["kind"])] },
    labels: { type: "object", additionalProperties: { type: "string" } },
  }, ["customer", "items", "payment"], { $defs: {
    Customer: object({ name: { type: "string" }, mail: { type: "string", format: "email" } }, ["name"]),
    Item: object({ sku: { type: "string", pattern: "^[a-z]+$" }, count: { type: "integer", minimum: 1, maximum: 9, default: 1 } }, ["sku"]),
    Address: object({ street: { type: "string" } }, ["street"]),
  } })),
  tool("tree", { ...object({ label: { type: "string" }, children: { type: "array", items: { $ref: "#" } } }, ["label"]) }),
  tool("numbers", object({ whole: { type: "integer", minimum: 0, maximum: 10 }, any: { type: "number" }, big: { type: "integer" },
    maybe: { type: ["integer", "null"] } }, ["whole", "maybe"])),
  tool("texts", object({ town: { type: "string", minLength: 2 }, body: { type: "string" }, long: { type: "string", maxLength: 2000 }, day: { type: "string", format: "date" },
    key: { type: "string", format: "password" } }, ["town"])),
  tool("look", object({}), { title: "Look at it", description: "Reads only.", annotations: { readOnlyHint: true } }),
  tool("drop", object({}), { annotations: { readOnlyHint: false, destructiveHint: true } }),
  tool("rename", object({}), { annotations: { destructiveHint: false } }),
];
/// Schemas that are odd, or wrong. None may keep the form from being shown.
const ODD = [true, false, {}, { type: ["string", "integer"] }, { type: ["string", "null"] }, { type: "null" }, { enum: [] }, { enum: [null] }, { enum: [null, "a"] },
  { const: null }, { const: { a: 1 } }, { anyOf: [] }, { anyOf: [{}] }, { oneOf: [true, false] }, { oneOf: [{ type: "string" }, { type: "integer" }] }, { allOf: [{ type: "string" }] },
  { allOf: [{ type: "object" }, { required: ["a"] }] }, { $ref: "#/nowhere" }, { $ref: "elsewhere.json" }, { $ref: "#" }, { $ref: "#/$defs/loop" }, { not: {} }, { items: true }, { type: "array" },
  { type: "array", items: {} }, { type: "array", items: { enum: ["a"] } }, { type: "array", prefixItems: [{ type: "string" }] }, { type: "object" }, { type: "object", properties: {} },
  { type: "object", properties: null }, { type: "object", required: ["a"] }, { type: "string", default: 1 }, { type: "integer", default: "x" }, { type: "object", default: [], properties: { a: {} } },
  { type: "array", default: {}, items: { type: "string" } }, { type: "boolean", default: "yes" }, { type: "string", pattern: "(" }, { type: "string", minLength: "3" }, { type: "thing" }, { title: {}, description: 3 },
  { anyOf: [{ type: "object", properties: { a: { const: "x" } } }, { type: "array", items: { $ref: "#" } }, { const: 1 }] }];
export const ODDITIES = [...ODD.flatMap((schema, number) => [
  tool(`odd_${number}`, { ...object({ value: schema }), $defs: { loop: { $ref: "#/$defs/loop" } } }),
  tool(`odd_required_${number}`, { ...object({ value: schema }, ["value"]), $defs: { loop: { $ref: "#/$defs/loop" } } }),
]), tool("no_schema"), tool("names", object(JSON.parse('{"__proto__": {"type": "string"}, "constructor": {"type": "string"}, "": {"type": "string"}}'))),
  tool("not_objects", { type: "object", properties: [], required: "a" }), tool("<b>markup</b>", object({ "<i>": { type: "string", description: "<img src=x>" } }), { description: "<script>1</script>" })];
export const MANY = Array.from({ length: 500 }, (_, number) => tool(`tool_${number}`, object({})));
