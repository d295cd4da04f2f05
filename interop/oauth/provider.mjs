// An identity provider: oidc-provider, with PKCE, refresh tokens, and access tokens in the form of JWT that are for the resource that
// was asked for (RFC 8707).
//
//   node provider.mjs PORT SECONDS [CALLBACK [SHAPE]]
//
// SECONDS is how long access tokens live. Every login succeeds, with the name that was entered. Without CALLBACK, clients register
// themselves. With it they cannot: there is one confidential client, `longshore`, which is redirected to CALLBACK, and the provider
// looks like SHAPE (shapes.mjs).
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import Provider from 'oidc-provider';
import { shapes } from './shapes.mjs';

const [port, seconds] = process.argv.slice(2, 4).map(Number);
const [callback, name = 'plain'] = process.argv.slice(4);
const { path = '', auth = 'client_secret_basic', alg = 'RS256', hides = [], iss = true, claims } = shapes[name];
const issuer = `http://127.0.0.1:${port}${path}`;
const mount = path === '/' ? '' : path;
const known = {
  client_id: 'longshore',
  client_secret: 'only for this run',
  redirect_uris: [callback],
  grant_types: ['authorization_code'],
  response_types: ['code'],
  token_endpoint_auth_method: auth,
  id_token_signed_response_alg: alg
};
const key = (type, options, alg) => ({ ...generateKeyPairSync(type, options).privateKey.export({ format: 'jwk' }), alg, use: 'sig', kid: alg });
const provider = new Provider(issuer, {
  clients: callback ? [known] : [],
  jwks: { keys: [key('rsa', { modulusLength: 2048 }, 'RS256'), key('ec', { namedCurve: 'P-256' }, 'ES256')] },
  claims: { openid: ['sub', ...Object.keys(claims)] },
  conformIdTokenClaims: false,
  clientAuthMethods: callback ? [auth] : undefined,
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: !callback },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => ({
        scope: 'mcp math',
        audience: resource,
        accessTokenTTL: seconds,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'RS256' } }
      }),
      useGrantedResource: () => true
    }
  },
  // A client registers itself with the scopes that it was told of first, and may ask for others later.
  extraClientMetadata: {
    properties: ['any_scope'],
    validator: (_ctx, _key, _value, metadata) => {
      delete metadata.scope;
    }
  },
  pkce: { required: () => true },
  scopes: ['openid', 'offline_access', 'mcp', 'math'],
  issueRefreshToken: async (_, client) => client.grantTypeAllowed('refresh_token'),
  cookies: { keys: ['only for this run'] },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...claims }) }),
  renderError: (ctx, out) => {
    ctx.body = out;
  }
});
provider.use(async (ctx, next) => {
  await next();
  const location = ctx.response.get('location') ?? '';
  if (!iss && callback && location.startsWith(callback)) {
    const back = new URL(location);
    back.searchParams.delete('iss');
    ctx.set('location', back.href);
  }
  if (ctx.path.endsWith('/.well-known/openid-configuration')) {
    for (const member of [...hides, ...(iss ? [] : ['authorization_response_iss_parameter_supported'])]) delete ctx.body[member];
  }
});
const handle = provider.callback();
createServer((request, response) => {
  if (!request.url.startsWith(mount)) {
    response.writeHead(404).end();
    return;
  }
  // As Express mounts an application below a path.
  request.baseUrl = mount;
  request.originalUrl = request.url;
  request.url = request.url.slice(mount.length) || '/';
  handle(request, response);
}).listen(port, '127.0.0.1', () => console.log(`${issuer} issues tokens`));
