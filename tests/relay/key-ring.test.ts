import { beforeEach, describe, expect, test } from '@jest/globals';
import { keyRing, REFUSED_FOR_MS } from '../../src/relay/upstream/key-ring.ts';
import { type KeyUse, keyRings } from '../../src/relay/upstream/key-rings.ts';
import { secret } from '../../src/secret.ts';

const [a, b, c] = [secret('key-a'), secret('key-b'), secret('key-c')];

let now: number;
beforeEach(() => {
  now = 1_000;
});
const clock = () => now;
const ringWith = (...keys: (typeof a)[]) => keyRing({ name: 'acme/helper', keys, now: clock });

describe('a ring of keys', () => {
  test('is tried in its order, whether its keys worked or were never tried', () => {
    const ring = ringWith(a, b, c);
    expect(ring.order()).toEqual([a, b, c]);
    ring.worked(b);
    expect(ring.order()).toEqual([a, b, c]);
  });

  test('tries a key last that was refused', () => {
    const ring = ringWith(a, b, c);
    ring.refused(a);
    for (let n = 0; n < 3; n++) expect(ring.order()).toEqual([b, c, a]);
    ring.refused(b);
    expect(ring.order()).toEqual([c, a, b]);
  });

  test('tries it in its own place again after a while, by one message at a time', () => {
    const ring = ringWith(a, b);
    ring.refused(a);
    now += REFUSED_FOR_MS - 1;
    expect(ring.order()).toEqual([b, a]);
    now += 1;
    expect(ring.order()).toEqual([a, b]);
    // Others need not wait for what becomes of that one.
    expect(ring.order()).toEqual([b, a]);
    now += REFUSED_FOR_MS;
    expect(ring.order()).toEqual([a, b]);
    ring.refused(a);
    now += REFUSED_FOR_MS - 1;
    expect(ring.order()).toEqual([b, a]);
  });

  test('has a key back in its place once that has worked again', () => {
    const ring = ringWith(a, b);
    ring.refused(a);
    now += REFUSED_FOR_MS;
    expect(ring.order()).toEqual([a, b]);
    ring.worked(a);
    for (let n = 0; n < 3; n++) expect(ring.order()).toEqual([a, b]);
  });

  test('spends no try on a key behind one that works', () => {
    const ring = ringWith(a, b);
    ring.refused(b);
    now += REFUSED_FOR_MS;
    expect(ring.order()).toEqual([a, b]);
    ring.refused(a);
    // It is b's turn at once: that was not used up.
    expect(ring.order()).toEqual([a, b]);
  });

  test('tries it at once where somebody asks for that', () => {
    const ring = ringWith(a, b);
    ring.refused(a);
    ring.retry();
    expect(ring.order()).toEqual([a, b]);
    expect(ring.order()).toEqual([b, a]);
  });

  test('never locks out: where all were refused, all are tried', () => {
    const ring = ringWith(a, b);
    ring.refused(b);
    ring.refused(a);
    for (let n = 0; n < 3; n++) expect(ring.order()).toEqual([a, b]);
  });

  test('says when it is news that a key worked', () => {
    const ring = ringWith(a);
    expect([ring.worked(a), ring.worked(a)]).toEqual([true, false]);
    ring.refused(a);
    expect([ring.worked(a), ring.worked(a)]).toEqual([true, false]);
  });

  test('knows of the keys that stay what the ring before it knew, and tries a new one at once', () => {
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
    // A message that began with the ring before still counts.
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

  test('are those of the list and those of the file, in this order', () => {
    expect(
      make()
        .all()
        .map(({ name }) => name),
    ).toEqual(['acme/*', 'acme/exact', 'other/*', 'acme/own', '*/echo', 'other/slow']);
    expect(make().keys()).toEqual([a, b, c]);
  });

  test('do not share what they know: a key may be good for one bot and not for another', () => {
    const rings = keyRings({ settings: { apiKeys: [a, b], own: {} }, bots: ['x/one', 'x/two'], now: clock });
    rings.ringOf('x/one').refused(a);
    expect(rings.ringOf('x/one').order()).toEqual([b, a]);
    expect(rings.ringOf('x/two').order()).toEqual([a, b]);
  });

  test('go by other settings from then on, and a message keeps the ring that it began with', () => {
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

  test('tell of every use of a key', () => {
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
