#!/usr/bin/env node
// Starts the longshore program of this machine, which is in a package of its own.
"use strict";

const { spawn } = require("node:child_process");

const name = `$scope/longshore-$${process.platform}-$${process.arch}`;
const file = process.platform === "win32" ? "longshore.exe" : "longshore";

let program;
try {
  program = require.resolve(`$${name}/bin/$${file}`);
} catch {
  console.error(
    `longshore: the package $${name} is not installed. Either there is no build for this machine, or optional ` +
      "dependencies were left out: install again without --omit=optional.",
  );
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`longshore: $${program} cannot be started: $${error.message}`);
  process.exit(1);
});
// A terminal signals both processes; other programs signal this one only.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => {
    if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
  });
}
child.on("exit", (code, signal) => {
  if (signal) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  } else {
    process.exit(code);
  }
});
