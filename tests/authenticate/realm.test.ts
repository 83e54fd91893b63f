import { expect, test } from '@jest/globals';
import { realmOf } from '../../src/authenticate/sessions/session.ts';
import { loadConfig } from '../../src/config/config.ts';

const OIDC = { AUTH_MODE: 'oidc', OIDC_CLIENT_ID: 'bot-relay', OIDC_CLIENT_SECRET: 'secret' };

// With another realm, no user would reach an earlier conversation. docs/configuration.md names them for CHANNEL_REALM.
test.each([
  [{}, 'password'],
  [{ AUTH_MODE: 'guest' }, 'guest'],
  [{ ...OIDC, OIDC_ISSUER: 'https://id.example.com' }, 'oidc https://id.example.com/ bot-relay'],
  [{ ...OIDC, OIDC_ISSUER: 'https://id.example.com/staff' }, 'oidc https://id.example.com/staff bot-relay'],
])('the realm of the users of %j stays %s', (environment, realm) => {
  expect(realmOf(loadConfig(environment))).toBe(realm);
});
