#!/usr/bin/env node
// A browser for `longshore login --browser`: opens its one argument, and follows redirects, as a user would who
// consents to everything.
const answer = await fetch(process.argv[2], { redirect: 'follow' });
await answer.arrayBuffer();
