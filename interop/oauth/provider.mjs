// An identity provider: oidc-provider, with clients that register themselves, PKCE, refresh tokens, and access tokens in
// the form of JWT that are for the resource that was asked for (RFC 8707).
//
//   node provider.mjs PORT SECONDS [CALLBACK]
//
// SECONDS is how long access tokens live. Everybody who signs in is who they say they are. With CALLBACK, clients cannot register
// themselves: there is one confidential client, `longshore`, which is redirected to CALLBACK, as at Entra, Google or Okta.
import Provider from 'oidc-provider';

const [port, seconds] = process.argv.slice(2, 4).map(Number);
const callback = process.argv[4];
const issuer = `http://127.0.0.1:${port}`;
const known = {
  client_id: 'longshore',
  client_secret: 'only for this run',
  redirect_uris: [callback],
  grant_types: ['authorization_code'],
  response_types: ['code']
};
const provider = new Provider(issuer, {
  clients: callback ? [known] : [],
  claims: { openid: ['sub'], profile: ['name'], email: ['email', 'email_verified'] },
  conformIdTokenClaims: false,
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
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, name: id, email: `${id}@example.com`, email_verified: true }) }),
  renderError: (ctx, out) => {
    ctx.body = out;
  }
});
provider.listen(port, '127.0.0.1', () => console.log(`${issuer} issues tokens`));
