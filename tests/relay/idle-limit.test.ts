import { expect, test } from '@jest/globals';
import { idleLimit } from '../../src/relay/upstream/idle-limit.ts';

/** A limit that has learned from connections which the service closed at these ages. */
function learned(...ages: number[]) {
  const limit = idleLimit();
  for (const age of ages) limit.ended(age, 'service');
  return limit;
}

test('there is no limit until the service has closed an idle connection', () => {
  const limit = learned();
  for (let n = 0; n < 5; n++) limit.ended(4000, 'relay');
  expect(limit.ms()).toBe(Number.POSITIVE_INFINITY);
});

test('the limit is half of the shortest time after which the service closed a connection', () => {
  expect(learned(900, 300, 700).ms()).toBe(150);
});

test('the last 32 connections count', () => {
  const limit = learned(300, ...Array<number>(31).fill(800));
  expect(limit.ms()).toBe(150);
  limit.ended(800, 'service');
  expect(limit.ms()).toBe(400);
});

test('three connections in a row that the service leaves open make the limit forgotten', () => {
  const limit = learned(300);
  limit.ended(4000, 'relay');
  limit.ended(4000, 'relay');
  limit.ended(300, 'service');
  limit.ended(4000, 'relay');
  limit.ended(4000, 'relay');
  expect(limit.ms()).toBe(150);
  limit.ended(4000, 'relay');
  expect(limit.ms()).toBe(Number.POSITIVE_INFINITY);
  limit.ended(500, 'service');
  expect(limit.ms()).toBe(250);
});

test('connections that lived shorter than the shortest time show nothing', () => {
  const limit = learned(1500);
  for (let n = 0; n < 5; n++) limit.ended(1000, 'relay');
  expect(limit.ms()).toBe(750);
});
