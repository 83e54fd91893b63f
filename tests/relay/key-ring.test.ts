import { beforeEach, describe, expect, test } from '@jest/globals';
import { keyRing, REFUSED_FOR_MS } from '../../src/relay/upstream/key-ring.ts';
import { type KeyUse, keyRings } from '../../src/relay/upstream/key-rings.ts';
import { maskKeys } from '../../src/relay/upstream/upstream-request.ts';
import { type Secret, secret } from '../../src/secret.ts';

const [a, b, c] = [secret('key-a'), secret('key-b'), secret('key-c')];

let now: number;
beforeEach(() => {
  now = 1_000;
});
const clock = () => now;
const ringWith = (...keys: (typeof a)[]) => keyRing({ name: 'acme/helper', keys, now: clock });

describe('a key ring', () => {
  test('puts a refused key last', () => {
    const ring = ringWith(a, b, c);
    ring.refused(a);
    for (let n = 0; n < 3; n++) expect(ring.order()).toEqual([b, c, a]);
    ring.refused(b);
    expect(ring.order()).toEqual([c, a, b]);
  });

  test('puts a refused key at its configured position again after a while, for one message at a time', () => {
    const ring = ringWith(a, b);
    ring.refused(a);
    now += REFUSED_FOR_MS - 1;
    expect(ring.order()).toEqual([b, a]);
    now += 1;
    expect(ring.order()).toEqual([a, b]);
    // Other messages do not wait for the result.
    expect(ring.order()).toEqual([b, a]);
    now += REFUSED_FOR_MS;
    expect(ring.order()).toEqual([a, b]);
    ring.refused(a);
    now += REFUSED_FOR_MS - 1;
    expect(ring.order()).toEqual([b, a]);
  });

  test('keeps a key at its configured position once it has worked again', () => {
    const ring = ringWith(a, b);
    ring.refused(a);
    now += REFUSED_FOR_MS;
    expect(ring.order()).toEqual([a, b]);
    ring.worked(a);
    for (let n = 0; n < 3; n++) expect(ring.order()).toEqual([a, b]);
  });

  test('keeps the try of a key after one that works for later', () => {
    const ring = ringWith(a, b);
    ring.refused(b);
    now += REFUSED_FOR_MS;
    expect(ring.order()).toEqual([a, b]);
    ring.refused(a);
    // Key b is tried at once, since its try was not used.
    expect(ring.order()).toEqual([a, b]);
  });

  test('puts a refused key back at once after tryRefusedAgain', () => {
    const ring = ringWith(a, b);
    ring.refused(a);
    ring.tryRefusedAgain();
    expect(ring.order()).toEqual([a, b]);
    expect(ring.order()).toEqual([b, a]);
  });

  test('tries all keys if all were refused', () => {
    const ring = ringWith(a, b);
    ring.refused(b);
    ring.refused(a);
    for (let n = 0; n < 3; n++) expect(ring.order()).toEqual([a, b]);
  });

  test('takes over the states of keys that stay, and tries a new key at once', () => {
    const before = ringWith(a, b);
    before.refused(a);
    const after = keyRing({
      name: 'acme/helper',
      keys: [c, secret('key-a'), b],
      before: before.states,
      now: clock,
    });
    expect(after.order().map(({ fingerprint }) => fingerprint)).toEqual(
      [c, b, a].map(({ fingerprint }) => fingerprint),
    );
    // A message that uses the previous ring still counts.
    before.worked(a);
    expect(after.order()[1]?.fingerprint).toBe(a.fingerprint);
  });
});

describe('the rings of all bots', () => {
  const own = { 'acme/own': { keys: [b] }, '*/echo': { keys: [c] }, 'other/slow': { rateLimit: 1 } };
  const make = (observe?: (use: KeyUse) => void) =>
    keyRings({
      settings: { apiKeys: [a], own },
      bots: ['acme/*', 'acme/exact', 'other/*'],
      now: clock,
      ...(observe && { observe }),
    });

  test.each([
    ['acme/exact', 'acme/exact', a],
    ['acme/some', 'acme/*', a],
    ['acme/own', 'acme/own', b],
    ['acme/echo', '*/echo', c],
    ['other/echo', '*/echo', c],
    ['other/slow', 'other/slow', a],
  ])('%s has the ring %s', (bot, name, key) => {
    const ring = make().ringOf(bot);
    expect(ring.name).toBe(name);
    expect(ring.keys).toEqual([key]);
    expect(ring.order()).toEqual([key]);
  });

  test('are those of the allow-list and those of the settings, in this order', () => {
    expect(
      make()
        .all()
        .map(({ name }) => name),
    ).toEqual(['acme/*', 'acme/exact', 'other/*', 'acme/own', '*/echo', 'other/slow']);
    expect(make().keys()).toEqual([a, b, c]);
  });

  test('have separate states, since a key may work for one bot and not for another', () => {
    const rings = keyRings({ settings: { apiKeys: [a, b], own: {} }, bots: ['x/one', 'x/two'], now: clock });
    rings.ringOf('x/one').refused(a);
    expect(rings.ringOf('x/one').order()).toEqual([b, a]);
    expect(rings.ringOf('x/two').order()).toEqual([a, b]);
  });

  test('use new settings at once, but a message keeps the ring that it began with', () => {
    const rings = make();
    const begun = rings.ringOf('acme/own');
    rings.use({ apiKeys: [c, a], own: { 'acme/own': { keys: [c, b] } } });
    expect(begun.order()).toEqual([b]);
    expect(rings.ringOf('acme/own').order()).toEqual([c, b]);
    expect(rings.ringOf('acme/echo')).toMatchObject({ name: 'acme/*', keys: [c, a] });
    expect(rings.all()).toHaveLength(4);
    begun.refused(b);
    rings.ringOf('acme/own').worked(c);
    expect(rings.ringOf('acme/own').order()).toEqual([c, b]);
    rings.use({ apiKeys: [a], own: { 'acme/own': { keys: [b, c] } } });
    expect(rings.ringOf('acme/own').order()).toEqual([c, b]);
  });

  test('report every use of a key', () => {
    const uses: KeyUse[] = [];
    const ring = make((use) => void uses.push(use)).ringOf('acme/some');
    ring.refused(a);
    ring.worked(a);
    ring.worked(a);
    expect(uses).toEqual(
      ['refused', 'worked', 'worked'].map((outcome) => ({
        ring: 'acme/*',
        fingerprint: a.fingerprint,
        outcome,
      })),
    );
  });
});

test('keys are masked, the longer first, also if they are the whole text', () => {
  const mask = maskKeys(['key', 'longer-key', 'key-2'].map(secret));
  expect(['key', 'a longer-key-2', 'key-2', 'ke', ''].map(mask)).toEqual([
    ...['[secret]', 'a [secret]-2', '[secret]', 'ke', ''],
  ]);
  expect(maskKeys([])('text')).toBe('text');
});

test('keys are opened once, however many texts are masked', () => {
  let opened = 0;
  const counted: Secret = {
    fingerprint: '0',
    open() {
      opened += 1;
      return 'key';
    },
  };
  const mask = maskKeys([counted]);
  for (let n = 0; n < 1000; n += 1) mask(`text ${n}`);
  expect(opened).toBe(1);
});
