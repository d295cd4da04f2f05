// A server within the browser's network layer, for what no toolset offers: schemas of many kinds, and hundreds of tools.

import { HANDSHAKE, STATELESS } from "./harness.mjs";

/// Answers at the endpoint with these tools; what they are called with is in the result.
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
export const MANY = Array.from({ length: 500 }, (_, number) => tool(`tool_${number}`, object({})));
