import { readFileSync } from 'node:fs';
import { describe, expect, test } from '@jest/globals';
import { localPath } from '../../src/authenticate/oidc/return-to.ts';

const OWN = 'https://own.example';
const AUTH = '/auth';
const BASE_PATHS = ['', '/chat-api'];

interface Hostile {
  readonly value: string;
  readonly basePaths: readonly string[];
}

/** The hostile values of the corpus. The head of the file describes its format. */
function corpus(): Hostile[] {
  const text = readFileSync(new URL('../security/hostile-return-to.txt', import.meta.url), 'utf8');
  let basePaths: readonly string[] = BASE_PATHS;
  return text.split('\n').flatMap((line) => {
    const directive = /^\[BASE_PATH=(.*)\]$/.exec(line);
    if (directive) basePaths = [directive[1] as string];
    return directive || line === '' || line.startsWith('#') ? [] : [{ value: read(line), basePaths }];
  });
}

function read(line: string): string {
  return line.replace(/<U\+([0-9A-F]{4,6})(?: x(\d+))?>/g, (_, code: string, times = '1') =>
    String.fromCodePoint(Number.parseInt(code, 16)).repeat(Number(times)),
  );
}

/**
 * The origins to which a browser could go from `location`, depending on how servers and browsers read it: unchanged,
 * decoded up to three times even if it is broken, and with backslashes as slashes.
 */
function origins(location: string): Set<string> {
  const readings = [location];
  for (let times = 0; times < 3; times += 1) {
    const last = readings.at(-1) as string;
    readings.push(
      last.replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16))),
    );
  }
  const all = readings.flatMap((reading) => [reading, reading.replaceAll('\\', '/')]);
  return new Set(all.map((reading) => (URL.canParse(reading, OWN) ? new URL(reading, OWN).origin : reading)));
}

const hostile = corpus();
const GOOD = [
  '/',
  '/chat',
  '/chat/',
  '/chat/room/7',
  '/chat?room=7',
  '/?room=7',
  '/#room',
  '/chat?room=7&tab=a#message-12',
  '/chat?',
  '/chat#',
  '/chat#/rooms/7',
  '/chat?q=two%20words',
  '/two%20words/and%20more',
  '/chat?q=a+b',
  '/b%C3%BCcher/%E4%B8%AD%E6%96%87',
  '/%F0%9F%98%80',
  '/chat?name=%E4%B8%AD%E6%96%87',
  '/chat?path=%2Fa%2Fb',
  '/chat?path=a%2f..%2fb',
  '/chat?next=https://elsewhere.example/x?y=z',
  '/chat?next=https%3A%2F%2Felsewhere.example%2Fx%3Fy%3Dz',
  '/chat?next=//elsewhere.example',
  '/chat?next=%2F%2Felsewhere.example',
  '/chat#https://elsewhere.example',
  '/chat?rate=100%25',
  '/chat?a=%5B1%5D&b[]=2',
  '/a/b%2Fc/d',
  '/files/.hidden',
  '/files/a..b/...',
  '/.well-known/x',
  '/user@own.example/x:y;v=1,2',
  "/~ada/(a)'!*$&=",
  '/javascript:alert(1)',
  '/authors',
  '/authority/x',
  '/auth-help',
  '/x/auth/login',
  '/chat?to=/auth/login',
  `/${'a'.repeat(511)}`,
  `/chat?q=${'a'.repeat(504)}`,
];

describe('the return path of a sign-in', () => {
  test('is tested with many values, each of them once', () => {
    expect(hostile.length).toBeGreaterThan(300);
    const tried = hostile.flatMap(({ value, basePaths }) => basePaths.map((base) => `${base} ${value}`));
    expect(new Set(tried).size).toBe(tried.length);
  });

  test.each(hostile.map(({ value, basePaths }) => [value.slice(0, 80), value, basePaths] as const))(
    'is / for %j',
    (_shown, value, basePaths) => {
      for (const base of basePaths) {
        const path = localPath(value, base + AUTH);
        expect(path).toBe('/');
        expect([...origins(path)]).toEqual([OWN]);
      }
    },
  );

  test.each(GOOD)('is %s unchanged', (value) => {
    expect(localPath(value, AUTH)).toBe(value);
    expect([...origins(value)]).toEqual([OWN]);
  });

  test('is / if there is no returnTo', () => {
    expect(localPath(null, AUTH)).toBe('/');
    expect(localPath('', AUTH)).toBe('/');
  });

  test('may be /auth/login if BASE_PATH moves the sign-in elsewhere', () => {
    expect(localPath('/auth/login', '/chat-api/auth')).toBe('/auth/login');
    expect(localPath('/chat-api/x', '/chat-api/auth')).toBe('/chat-api/x');
  });

  test('is on the own origin for all combinations of the parts of attacks', () => {
    const parts = [
      ...['/', '\\', '.', '..', ':', '@', '?', '#', ';', '%', '%25', 'evil.example', 'https:'],
      ...['%2f', '%252f', '%5c', '%2e', '%3f', '%09', '\t', '%ef%bc%8f', '\uff0f'],
    ];
    const kept = new Set<string>();
    const build = (text: string, depth: number) => {
      const path = localPath(text, AUTH);
      expect(path === '/' || path === text).toBe(true);
      kept.add(path);
      if (depth > 0) for (const part of parts) build(text + part, depth - 1);
    };
    build('', 1);
    build('/', 3);
    // Some combinations are harmless and therefore accepted; each of those must stay on the own origin.
    expect(kept.size).toBeGreaterThan(100);
    expect([...kept].filter((path) => origins(path).size !== 1 || !origins(path).has(OWN))).toEqual([]);
  });
});
