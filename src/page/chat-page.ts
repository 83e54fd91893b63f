import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { extname } from 'node:path';
import type { Request, Response } from 'express';
import type { Config } from '../config/config.ts';
import { pagePolicy } from './page-policy.ts';

/** One path below the base path, and its handler of `GET`. */
export interface Page {
  readonly path: string;
  readonly handler: (req: Request, res: Response) => void;
}

/** Where `npm run build` puts the page's files and the modules of the client, beside this file or its source. */
const FOLDERS = [new URL('files/', import.meta.url), new URL('../../dist/page/files/', import.meta.url)];

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

const POLICY = pagePolicy();

/** What the page knows of the relay's configuration. */
type PageConfig = Pick<Config, 'basePath' | 'authMode' | 'bots' | 'operations'> & {
  readonly channels: Pick<Config['channels'], 'mode'>;
};

/**
 * The chat page and its files. They are read once, so that no path of a request is looked up in a folder. Empty if the
 * files are missing, since the relay can run without them. `bots` are those that the page offers, each `namespace/bot`.
 */
export function chatPages({ basePath, authMode, bots, operations, channels }: PageConfig): Page[] {
  const folder = FOLDERS.find((one) => existsSync(new URL('bot-relay-client.js', one)));
  if (!folder) return [];
  const read = (name: string) => readFileSync(new URL(name, folder), 'utf8');
  const settings = {
    ...{ mode: authMode, bots: bots.join(' '), operations: operations.join(' '), channels: channels.mode },
  };
  return [
    // The links of the page are relative, so its path must end with a slash.
    ...(basePath === '' ? [] : [{ path: '', handler: redirect(`${basePath}/`) }]),
    { path: '/', handler: file('index.html', fill(read('index.html'), settings), POLICY) },
    ...readdirSync(folder)
      .filter((name) => name !== 'index.html' && !name.startsWith('.') && extname(name) in TYPES)
      .map((name) => ({ path: `/${name}`, handler: file(name, read(name)) })),
  ];
}

/** Puts settings, escaped, into the `{{name}}` placeholders of the page. */
function fill(html: string, settings: Readonly<Record<string, string>>): string {
  return html.replace(/\{\{(\w+)\}\}/g, (_, name: string) =>
    (settings[name] ?? '').replace(/[&<>"']/g, (one) => `&#${one.charCodeAt(0)};`),
  );
}

function file(name: string, text: string, policy?: string): Page['handler'] {
  const body = Buffer.from(text);
  const type = TYPES[extname(name)] ?? '';
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
