import { existsSync, readFileSync } from 'node:fs';
import { extname } from 'node:path';
import type { Request, Response } from 'express';
import type { Config } from '../config/config.ts';
import { browserModules } from './browser-modules.ts';

/** One path below the base path, and what answers `GET` there. */
export interface Page {
  readonly path: string;
  readonly handler: (req: Request, res: Response) => void;
}

/** The page's own files; `tsc` copies none of them, so that where there is only its output they are in `src`. */
const FOLDERS = [new URL('files/', import.meta.url), new URL('../../src/page/files/', import.meta.url)];
const FILES = [
  'chat.css',
  'chat.js',
  'chat-messages.js',
  'chat-session.js',
  'chat-tools.js',
  'chat-icon.svg',
];
/** The client beside this file: built if this is, TypeScript if this is. */
const CLIENT = new URL(`../client/bot-client${extname(import.meta.url)}`, import.meta.url);

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Files of the relay's own origin only, and no text that becomes code (W3C CSP 3, Trusted Types). */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

/**
 * The chat page and its files, read once; no path is ever looked up in a folder. Nothing if its files are not there,
 * which is no reason not to run. `bots` are those that the page offers, each `namespace/bot`.
 */
export function chatPages({
  basePath,
  authMode,
  bots,
}: Pick<Config, 'basePath' | 'authMode' | 'bots'>): Page[] {
  const folder = FOLDERS.find((one) => existsSync(new URL('index.html', one)));
  if (!folder) return [];
  const read = (name: string) => readFileSync(new URL(name, folder), 'utf8');
  const settings = { mode: authMode, bots: bots.join(' ') };
  return [
    // Its links are relative to the folder that the base path is.
    ...(basePath === '' ? [] : [{ path: '', handler: redirect(`${basePath}/`) }]),
    { path: '/', handler: file('index.html', fill(read('index.html'), settings), POLICY) },
    ...FILES.map((name) => ({ path: `/${name}`, handler: file(name, read(name)) })),
    ...Array.from(browserModules(CLIENT, 'bot-relay-client.js'), ([name, code]) => ({
      path: `/${name}`,
      handler: file(name, code),
    })),
  ];
}

/** Puts settings into the attributes that wait for them. */
function fill(html: string, settings: Readonly<Record<string, string>>): string {
  return html.replace(/\{\{(\w+)\}\}/g, (_, name: string) =>
    (settings[name] ?? '').replace(/[&<>"']/g, (one) => `&#${one.charCodeAt(0)};`),
  );
}

function file(name: string, text: string, policy?: string): Page['handler'] {
  const body = Buffer.from(text);
  const type = TYPES[extname(name)] as string;
  return function chatFile(_req, res) {
    res.setHeader('Content-Type', type);
    res.setHeader('Content-Length', body.length);
    if (policy) res.setHeader('Content-Security-Policy', policy);
    res.end(body);
  };
}

function redirect(to: string): Page['handler'] {
  return function chatFolder(_req, res) {
    res.statusCode = 307;
    res.setHeader('Location', to);
    res.end();
  };
}
