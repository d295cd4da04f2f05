// Makes text.wasm of text.js: node build.mjs [FILE]
import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { componentize } from "@bytecodealliance/componentize-js";

const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const { component } = await componentize({
  sourcePath: path("text.js"),
  witPath: path("wit"),
  worldName: "text",
  // What is not asked for is not imported; components are not given HTTP. Output is for exceptions, which go to the log.
  disableFeatures: ["http", "fetch-event", "random", "clocks"],
});
await writeFile(process.argv[2] ?? path("text.wasm"), component);
