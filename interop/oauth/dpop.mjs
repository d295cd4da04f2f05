// openid-client, a certified OAuth client, logs in with DPoP at a server that issues and requires bound tokens and nonces:
// registration, PKCE, the code, a call, a refresh, and what a thief of the token can do with it.
//
//   node dpop.mjs URL
//
// Prints a line for each step.
import assert from 'node:assert/strict';
import * as oauth from 'openid-client';
import { signIn } from './person.mjs';

const url = new URL(process.argv[2]);
const redirectUri = 'http://127.0.0.1:9/callback';

const local = { execute: [oauth.allowInsecureRequests], algorithm: 'oauth2' };
const config = await oauth.dynamicClientRegistration(
  new URL(url.origin),
  { client_name: 'longshore-interop', redirect_uris: [redirectUri], token_endpoint_auth_method: 'none', dpop_bound_access_tokens: true },
  oauth.None(),
  local
);
const DPoP = oauth.getDPoPHandle(config, await oauth.randomDPoPKeyPair('ES256'));
const verifier = oauth.randomPKCECodeVerifier();
const state = oauth.randomState();
const start = oauth.buildAuthorizationUrl(config, {
  redirect_uri: redirectUri,
  code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
  code_challenge_method: 'S256',
  resource: url.href,
  state,
  dpop_jkt: await DPoP.calculateThumbprint()
});
const back = new URL(`${redirectUri}?${await signIn(start, redirectUri)}`);
const checks = { pkceCodeVerifier: verifier, expectedState: state };
let tokens = await oauth.authorizationCodeGrant(config, back, checks, {}, { DPoP });
assert.equal(tokens.token_type, 'dpop');
const claims = (token) => JSON.parse(Buffer.from(token.split('.')[1], 'base64url'));
assert.equal(claims(tokens.access_token).cnf.jkt, await DPoP.calculateThumbprint());
console.log('sign-in: the token is bound to the key of the client; the nonce of the server was learned on the way');

const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
const initialize = {
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'longshore-interop', version: '1' } }
};
const body = JSON.stringify(initialize);
const call = () => oauth.fetchProtectedResource(config, tokens.access_token, url, 'POST', body, new Headers(headers), { DPoP });
for (let times = 0; times < 3; times += 1) {
  const answer = await call();
  assert.equal(answer.status, 200, await answer.text());
}
console.log('call: answered, each time with another DPoP proof');

const before = tokens.access_token;
tokens = await oauth.refreshTokenGrant(config, tokens.refresh_token, {}, { DPoP });
assert.notEqual(tokens.access_token, before);
assert.equal((await call()).status, 200);
console.log('refresh: another token, bound to the same key');

const bearer = await fetch(url, { method: 'POST', headers: { ...headers, authorization: `Bearer ${tokens.access_token}` }, body });
assert.equal(bearer.status, 401);
const thief = oauth.getDPoPHandle(config, await oauth.randomDPoPKeyPair('ES256'));
const stolen = oauth.fetchProtectedResource(config, tokens.access_token, url, 'POST', body, new Headers(headers), { DPoP: thief });
const status = await stolen.then((answer) => answer.status, (error) => error.status ?? error.cause?.status ?? error.response?.status);
assert.equal(status, 401);
await assert.rejects(oauth.refreshTokenGrant(config, tokens.refresh_token, {}, { DPoP: thief }));
console.log('theft: the token is refused as a bearer token and with another key, and so is the refresh token');
