import { expect, test } from '@jest/globals';
import { clientAddress } from '../../src/http/client-address.ts';
import { type Holders, type HoldersOptions, nameHolders } from '../../src/pace/holders.ts';
import { call } from '../harness/clients/call.ts';
import { startTestApp } from '../harness/relay/test-app.ts';

/** The holders of a request of the user `id` from `address`. */
async function holders(options: HoldersOptions, id: string, address = '192.0.2.1'): Promise<Holders> {
  const stage = await startTestApp((app) => {
    app.set('trust proxy', 1);
    const holdersOf = nameHolders(options);
    app.get('/', (req, res) => void res.json(holdersOf(id, () => clientAddress(req))));
  });
  const { body } = await call(stage.port, '/', { headers: { 'X-Forwarded-For': address } });
  await stage.close();
  return JSON.parse(body) as Holders;
}

const PASSWORD = { realm: 'password', guests: false };
const GUEST = { realm: 'guest', guests: true };

test('a user is counted by a hash of realm and id, which may contain spaces, and not by address', async () => {
  const ann = await holders(PASSWORD, 'ann smith');
  expect(ann).toEqual({ user: expect.stringMatching(/^[\w-]{43}$/) });
  expect(await holders(PASSWORD, 'ann smith', '192.0.2.2')).toEqual(ann);
  expect(await holders(PASSWORD, 'ann')).not.toEqual(ann);
});

test('the same id is another user at another provider, for another client and with another way to sign in', async () => {
  const realms = ['password', 'guest', 'oidc https://a.example client', 'oidc https://a.example other'];
  const users = await Promise.all(
    realms.map(async (realm) => (await holders({ realm, guests: false }, 'ann')).user),
  );
  expect(new Set(users).size).toBe(realms.length);
});

test('guests from one address, or from one IPv6 /56, share the name of their address', async () => {
  const addresses = ['2001:db8:0:1::1', '2001:db8:0:ff::2', '2001:db8:0:100::1', '192.0.2.1', '192.0.2.2'];
  const all = await Promise.all(addresses.map((address, n) => holders(GUEST, `guest:${n}`, address)));
  const [one, same, ...others] = all.map(({ address }) => address);
  expect(same).toBe(one);
  expect(new Set([one, ...others]).size).toBe(4);
  expect(new Set(all.map(({ user }) => user)).size).toBe(addresses.length);
  expect(one).toMatch(/^[\w-]{43}$/);
});
