// The official TypeScript client against a server that asks for access tokens: discovery, registration, PKCE, a call, the
// token's end, its renewal, and a scope that was lacking.
//
//   node drive.mjs URL ISSUER SECONDS [REVISION [GROUPS]]
//
// ISSUER is the authorization server that the client is to find. SECONDS is how long access tokens live. GROUPS, separated by commas, are
// those that the token of the server names. Prints a line for each step.
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';
import { shown, signIn } from './person.mjs';

const [url, issuer, seconds, revision = '2025-11-25', groups = ''] = process.argv.slice(2);
const options = revision === '2026-07-28' ? { versionNegotiation: { mode: { pin: revision } } } : { supportedProtocolVersions: [revision] };
const redirectUrl = 'http://127.0.0.1:9/callback';

/** What the client keeps, and the person in front of it. */
class Person {
  verifier;
  discovered;
  client;
  kept;
  saved = 0;
  asked = [];
  get redirectUrl() {
    return redirectUrl;
  }
  get clientMetadata() {
    return {
      client_name: 'longshore-interop',
      redirect_uris: [redirectUrl],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
      application_type: 'native'
    };
  }
  clientInformation() {
    return this.client;
  }
  saveClientInformation(information) {
    this.client = information;
  }
  tokens() {
    return this.kept;
  }
  saveTokens(tokens) {
    this.kept = tokens;
    this.saved += 1;
  }
  saveCodeVerifier(verifier) {
    this.verifier = verifier;
  }
  codeVerifier() {
    return this.verifier;
  }
  saveDiscoveryState(state) {
    this.discovered = state;
  }
  discoveryState() {
    return this.discovered;
  }
  redirectToAuthorization(where) {
    this.asked.push(where);
  }
}

const person = new Person();

async function connect() {
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: person });
  const client = new Client({ name: 'longshore-interop', version: '1' }, options);
  await client.connect(transport);
  return client;
}

/** Does something that may lead to the provider's sign-in page, and does it again behind it. */
async function signedIn(act) {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
  }
  const back = await signIn(person.asked.at(-1), redirectUrl);
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: person });
  await transport.finishAuth(back);
  await transport.close();
  return act();
}

const add = { name: 'calculate', arguments: { operation: 'add', a: 19, b: 23 } };
const say = { name: 'echo', arguments: { message: 'hello' } };
const text = (result) => result.content[0].text;
const claims = () => JSON.parse(Buffer.from(person.kept.access_token.split('.')[1], 'base64url'));

// A request without a credential gets the URL of the metadata (RFC 9728).
const refused = await fetch(url, { method: 'POST' });
assert.equal(refused.status, 401);
const challenge = refused.headers.get('www-authenticate');
const metadata = /resource_metadata="([^"]+)"/.exec(challenge)?.[1];
assert.ok(metadata, challenge);
const resource = await (await fetch(metadata)).json();
assert.equal(resource.resource, url);
assert.deepEqual(resource.authorization_servers, [issuer]);
console.log(`discovery: 401 leads to ${new URL(metadata).pathname}, and that to ${issuer}`);

const client = await signedIn(connect);
const first = person.asked[0].searchParams;
assert.equal(first.get('code_challenge_method'), 'S256');
assert.equal(first.get('resource'), url);
assert.equal(claims().aud, url);
if (groups) assert.deepEqual(claims().groups.sort(), groups.split(',').sort());
assert.equal(shown.consents > 0, new URL(url).origin === issuer, 'the consent page of a server that is its own issuer');
console.log(`sign-in: the client registered itself, PKCE with S256, a token for ${claims().aud}`);

assert.equal(text(await client.callTool(say)), 'hello');
console.log(`call: answered for ${claims().sub} with the scopes "${claims().scope}"`);

const before = person.kept.access_token;
await new Promise((done) => setTimeout(done, (Number(seconds) + 3) * 1000));
const gone = await fetch(url, { method: 'POST', headers: { authorization: `Bearer ${before}` } });
assert.equal(gone.status, 401);
assert.match(gone.headers.get('www-authenticate'), /error="invalid_token"/);
console.log('expiry: the token is refused with invalid_token once it has ended');

const signIns = person.asked.length;
assert.equal(text(await client.callTool(say)), 'hello');
assert.notEqual(person.kept.access_token, before);
assert.equal(person.asked.length, signIns, 'nobody had to sign in again');
console.log('refresh: the client got another token by itself, and the same session went on');

const scopes = claims().scope;
assert.ok(!scopes.split(' ').includes('math'));
const answer = await signedIn(() => client.callTool(add));
assert.match(text(answer), /42/);
assert.ok(claims().scope.split(' ').includes('math'));
console.log(`step-up: 403 named the scope that was lacking; from "${scopes}" to "${claims().scope}"`);

const [head, body, signature] = person.kept.access_token.split('.');
const changed = Buffer.from(JSON.stringify({ ...claims(), sub: 'mallory' })).toString('base64url');
for (const [what, token] of [
  ['another subject', [head, changed, signature]],
  ['no signature', [head, body, '']]
]) {
  const answer = await fetch(url, { method: 'POST', headers: { authorization: `Bearer ${token.join('.')}` } });
  assert.equal(answer.status, 401, what);
}
console.log('forgery: a changed token and one without a signature are refused');
await client.close();
