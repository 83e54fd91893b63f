import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { ROOT, readSources } from '../harness/documents/sources.ts';

/** What Chrome 111, Firefox 115 or Safari 16.4 lacks, with the first versions that have it (MDN's compatibility data). */
const NEWER: Readonly<Record<string, RegExp>> = {
  'attributes of ARIA as properties: Firefox 119': /\.aria[A-Z]|\.role\s*=[^=]/,
  'AbortSignal.any: Chrome 116, Firefox 124, Safari 17.4': /\bAbortSignal\.any\b/,
  'a stream in a loop: Chrome 124, Safari 27': /\bfor await\s*\([^)]*\bbody\b/,
  'Promise.withResolvers: Chrome 119, Firefox 121, Safari 17.4': /\bPromise\.(?:withResolvers|try)\b/,
  'methods of sets: Chrome 122, Firefox 127, Safari 17':
    /\.(?:union|intersection|difference|symmetricDifference|isSubsetOf|isSupersetOf|isDisjointFrom)\(/,
  'methods of iterators: Chrome 122, Firefox 131, Safari 18.4':
    /\bIterator\b|\.(?:keys|values|entries|matchAll)\([^()]*\)\.(?!next\b)\w+\(/,
  'Array.fromAsync: Chrome 121': /\bArray\.fromAsync\b/,
  'Object.groupBy: Chrome 117, Firefox 119, Safari 17.4': /\b(?:Object|Map)\.groupBy\b/,
  'URL.canParse: Chrome 120, Safari 17': /\bURL\.(?:canParse|parse)\b/,
  'isWellFormed: Firefox 119': /\.(?:isWellFormed|toWellFormed)\(/,
  'bytes of a body, and base64: Chrome 132, Firefox 128, Safari 18':
    /\.(?:bytes|toBase64|fromBase64|toHex)\(/,
  'checkVisibility: Safari 17.4': /\.checkVisibility\(/,
  'popover: Chrome 114, Firefox 125, Safari 17': /[pP]opover/,
  'requestIdleCallback: no Safari': /\brequestIdleCallback\b/,
  'scheduler: Firefox 142, no Safari': /\bscheduler\./,
  'startViewTransition: Firefox 144, Safari 18': /\bstartViewTransition\b/,
};

/** The same of style sheets, where a rule that a browser does not know is left out. */
const NEWER_STYLE: Readonly<Record<string, RegExp>> = {
  ':has(): Firefox 121': /:has\(/,
  'rules in rules: Chrome 120, Firefox 117, Safari 17.2': /&|\{[^{}]*[;{]\s*[.:#][\w-]+\s*\{/,
  'light-dark(): Chrome 123, Firefox 120, Safari 17.5': /light-dark\(/,
  'text-wrap: Chrome 114, Firefox 121, Safari 17.4': /text-wrap/,
  '@scope, @starting-style: Chrome 118, Firefox 146, Safari 26.4': /@scope|@starting-style/,
};

const foundIn = (newer: typeof NEWER, files: readonly { readonly path: string; readonly text: string }[]) =>
  files.flatMap(({ path, text }) =>
    Object.entries(newer).flatMap(([what, pattern]) => (pattern.test(text) ? [`${path}: ${what}`] : [])),
  );

describe('the oldest browsers that the documents name', () => {
  test('have all that the client and its libraries use', () => {
    const names = readdirSync(join(ROOT, 'dist/client')).filter((name) => name.endsWith('.js'));
    const files = names.map((path) => ({
      path,
      text: readFileSync(join(ROOT, 'dist/client', path), 'utf8').replace(
        /^ *\/\/.*$|\/\*[\s\S]*?\*\//gm,
        '',
      ),
    }));
    expect(files.length).toBeGreaterThan(4);
    expect(foundIn(NEWER, files)).toEqual([]);
  });

  test('understand the style sheet of the chat', () => {
    const sources = readSources('src/client/element').filter(({ path }) => path.endsWith('chat-style.ts'));
    expect(sources.length).toBe(1);
    expect(foundIn(NEWER_STYLE, sources)).toEqual([]);
  });
});
