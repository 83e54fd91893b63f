import { readFile } from 'node:fs/promises';
import { createServer, request } from 'node:http';
import { pipeline } from 'node:stream';

const RELAY = 'http://localhost:3000';
const PORT = 8080;
/** @type {Readonly<Record<string, string>>} */
const TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8' };

/**
 * The file for a path: the page, its script, or a module of the client.
 * @param {string} path
 */
function fileOf(path) {
  if (path === '/') return 'index.html';
  if (path === '/chat.js') return 'chat.js';
  return /^\/bot-relay-client\/[\w-]+\.js$/.test(path) ? `node_modules${path}` : undefined;
}

/**
 * @param {import('node:http').IncomingMessage} req
 * @param {import('node:http').ServerResponse} res
 */
async function answer(req, res) {
  const [path = ''] = (req.url ?? '').split('?', 1);
  if (/^\/(auth|generic)\//.test(path)) return forward(req, res);
  const file = fileOf(path);
  const body = file && (await readFile(new URL(file, import.meta.url)).catch(() => undefined));
  if (!file || !body) return res.writeHead(404).end();
  res.writeHead(200, { 'Content-Type': TYPES[file.split('.').at(-1) ?? ''] }).end(body);
}

/**
 * Passes a call to the relay. If one side breaks off, so does the other.
 * @type {import('node:http').RequestListener}
 */
function forward(req, res) {
  const { host: _, ...headers } = req.headers;
  const call = request(RELAY + req.url, { method: req.method, headers }, (answered) => {
    res.writeHead(answered.statusCode ?? 502, answered.headers);
    pipeline(answered, res, () => {});
  });
  call.on('error', () => (res.headersSent ? res.destroy() : res.writeHead(502).end()));
  res.on('close', () => call.destroy());
  req.pipe(call);
}

createServer(answer).listen(PORT, 'localhost', () => console.log(`http://localhost:${PORT}/`));
