// What identity providers look like to a server that logs its users in there. Each shape has what the documentation of a product says
// about its metadata, tokens and claims; none is that product.
//
// path: of the issuer. auth: how the server authenticates. alg: of ID tokens. hides: members that are missing from the metadata.
// iss: false without the parameter `iss` of redirects. claims: of the ID token, beside `sub`. facade: settings of the server.
// groups: those of the user in tokens of the server.
const user = { name: 'Alice', email: 'alice@example.com' };

export const shapes = {
  plain: { claims: { ...user, email_verified: true, groups: ['staff'] }, groups: ['staff'] },
  entra: {
    path: '/8f2d0c9e-tenant/v2.0',
    auth: 'client_secret_post',
    hides: ['code_challenge_methods_supported', 'revocation_endpoint', 'introspection_endpoint'],
    iss: false,
    claims: { ...user, oid: '2b1c', tid: '8f2d0c9e-tenant', preferred_username: user.email, ver: '2.0', groups: ['c0ffee00-1111'] },
    groups: ['c0ffee00-1111']
  },
  google: {
    auth: 'client_secret_post',
    hides: ['introspection_endpoint'],
    iss: false,
    claims: { ...user, email_verified: true, hd: 'example.com' },
    facade: { allow: { domains: ['example.com'] } }
  },
  okta: {
    path: '/oauth2/default',
    claims: { ...user, email_verified: true, preferred_username: user.email, ver: 1, groups: ['Everyone', 'Engineers'] },
    facade: { allow: { groups: ['Engineers'] } },
    groups: ['Everyone', 'Engineers']
  },
  auth0: {
    path: '/',
    auth: 'client_secret_post',
    hides: ['introspection_endpoint'],
    iss: false,
    claims: { ...user, email_verified: true, nickname: 'alice', 'https://example_com/groups': ['admins'] },
    facade: { groups_claim: 'https://example_com/groups' },
    groups: ['admins']
  },
  keycloak: {
    path: '/realms/example',
    alg: 'ES256',
    claims: { ...user, email_verified: true, preferred_username: 'alice', realm_access: { roles: ['offline_access', 'operator'] } },
    groups: ['offline_access', 'operator']
  },
  cognito: {
    path: '/eu-west-1_Ab12Cd34E',
    hides: ['code_challenge_methods_supported', 'introspection_endpoint'],
    iss: false,
    claims: { ...user, email_verified: 'true', 'cognito:username': 'alice', 'cognito:groups': ['readers'], token_use: 'id' },
    facade: { groups_claim: 'cognito:groups', allow: { domains: ['example.com'] } },
    groups: ['readers']
  }
};
