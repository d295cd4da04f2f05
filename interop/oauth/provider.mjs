// An identity provider: oidc-provider, with clients that register themselves, PKCE, refresh tokens, and access tokens in
// the form of JWT that are for the resource that was asked for (RFC 8707).
//
//   node provider.mjs PORT SECONDS
//
// SECONDS is how long access tokens live. Everybody who signs in is who they say they are.
import Provider from 'oidc-provider';

const [port, seconds] = process.argv.slice(2).map(Number);
const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
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
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  renderError: (ctx, out) => {
    ctx.body = out;
  }
});
provider.listen(port, '127.0.0.1', () => console.log(`${issuer} issues tokens`));
