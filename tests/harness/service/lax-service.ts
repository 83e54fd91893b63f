import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

/** A member of a body, a query or a form: its decoded name, and its value, which JSON may have made anything. */
type Pair = readonly [name: string, value: unknown];

/** The parts of one request in which a service may look for the id of the conversation. */
interface Parts {
  readonly body: readonly Pair[];
  readonly query: readonly Pair[];
  /** The members of the objects in a body that is an array. */
  readonly inArray: readonly Pair[];
  /** The members of the objects from which some languages let an object inherit. */
  readonly inherited: readonly Pair[];
}

const NAMES = ['customChannelId', 'custom_channel_id'];
const ofName = (pairs: readonly Pair[], fold: (name: string) => string) =>
  pairs.filter(([name]) => NAMES.map(fold).includes(fold(name))).map(([, value]) => value);
const same = (text: string) => text;
const lower = (text: string) => text.toLowerCase();
const folded = (text: string) => lower(text).replace(/[_-]/g, '');
const trim = (text: string) => text.replace(/^[\s\0]+|[\s\0]+$/g, '');
const nfkc = (text: string) => text.normalize('NFKC');
const texts = (values: readonly unknown[]): string[] =>
  values.flatMap((value) => (typeof value === 'string' ? [value] : []));
const first = (values: readonly unknown[]) => texts(values.slice(0, 1));
const last = (values: readonly unknown[]) => texts(values.slice(-1));
/** The texts in a value that may be a list, however deep. */
const listed = (values: readonly unknown[]): string[] =>
  values.flatMap((value) => (Array.isArray(value) ? listed(value as unknown[]) : texts([value])));
/** The name up to where some parsers see an index or a member. */
const stem = (name: string) => name.split(/[[.]/, 1)[0] ?? '';

/** In which ways a service finds the id, by what is lax in it. Each returns all ids that it would use. */
export const LAXITIES: Readonly<Record<string, (parts: Parts) => string[]>> = {
  exact: ({ body, query }) => [...last(ofName(body, same)), ...first(ofName(query, same))],
  'without case, last wins': ({ body, query }) => [
    ...last(ofName(body, lower)),
    ...last(ofName(query, lower)),
  ],
  'without case and joints, last wins': ({ body, query }) => [
    ...last(ofName(body, folded)),
    ...last(ofName(query, folded)),
  ],
  'first wins': ({ body, query }) => [...first(ofName(body, same)), ...first(ofName(query, same))],
  arrays: ({ body, query, inArray }) => listed(ofName([...body, ...query, ...inArray], stem)),
  trimmed: ({ body, query }) => texts([...ofName(body, trim), ...ofName(query, trim)]).map(trim),
  NFKC: ({ body, query }) => texts([...ofName(body, nfkc), ...ofName(query, nfkc)]).map(nfkc),
  inherits: ({ inherited }) => texts(ofName(inherited, same)),
  'cut at 64': ({ body, query }) =>
    texts([...ofName(body, same), ...ofName(query, same)]).map((id) => id.slice(0, 64)),
  'all at once': ({ body, query, inArray, inherited }) => {
    const all = (name: string) => folded(trim(nfkc(stem(name)))).replace(/[^a-z]/g, '');
    return listed(ofName([...body, ...query, ...inArray, ...inherited], all)).map((id) =>
      lower(trim(nfkc(id))).slice(0, 64),
    );
  },
};

/** One request, with the ids that each laxity finds in it. */
export interface LaxRequest {
  readonly target: string;
  readonly body: string;
  readonly found: Readonly<Record<string, readonly string[]>>;
  /** Whether its path names the sandbox of the victim in any way. */
  readonly namesBox: boolean;
  /** Whether a path in its query leaves its folder, decoded in any way. */
  readonly leavesFolder: boolean;
}

/** The sandbox of the conversation `secretId`, and that of every other one. */
export const BOXES = { victim: 'victims-box', own: 'own-box' };

export interface LaxService {
  readonly url: string;
  readonly requests: LaxRequest[];
  /** The conversation whose text is told to everyone who reaches it by any laxity. */
  secretId: string;
  readonly secretText: string;
  close(): Promise<void>;
}

/** Starts a bot service that looks for the conversation of each request in every lax way at once. */
export async function startLaxService(): Promise<LaxService> {
  const requests: LaxRequest[] = [];
  const server = createServer(async (req, res) => {
    const body = await buffer(req).catch(() => Buffer.alloc(0));
    const parts = partsOf(req, body);
    const found = Object.fromEntries(Object.entries(LAXITIES).map(([name, find]) => [name, find(parts)]));
    const { url = '' } = req;
    const paths = { namesBox: namesBox(url), leavesFolder: leavesFolder(parts.query) };
    requests.push({ target: url, body: body.toString('latin1'), found, ...paths });
    const isReached = paths.namesBox || Object.values(found).flat().includes(service.secretId);
    const launched = found.exact?.includes(service.secretId) ? BOXES.victim : BOXES.own;
    const text = JSON.stringify({
      ...(url.includes('/channel/metadata') && { launchedSandboxes: [{ sandboxName: launched }] }),
      text: isReached ? service.secretText : 'nothing',
    });
    const isStream = req.url?.includes('/message/sse') || req.url?.includes('/fs/watch');
    res.setHeader('Content-Type', isStream ? 'text/event-stream' : 'application/json');
    res.end(isStream ? `data: ${text}\n\n` : text);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const service: LaxService = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    secretId: 'not known yet',
    secretText: 'the text of another user',
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return service;
}

/** Whether the path names the victim's sandbox, however lax it is read: decoded, in any case, anywhere in it. */
function namesBox(url: string): boolean {
  const path = decoded(decoded(decoded(url.split('?')[0] ?? '')));
  return path.normalize('NFKC').toLowerCase().includes(BOXES.victim);
}

function leavesFolder(query: readonly Pair[]): boolean {
  return query
    .filter(([name]) => /^(?:path|src|dst|relative_path)$/.test(name))
    .some(([, value]) => /(?:^|[/\\])\.\.(?:[/\\]|$)/.test(decoded(decoded(String(value)))));
}

function partsOf({ url = '', headers }: IncomingMessage, body: Buffer): Parts {
  const mark = url.indexOf('?');
  const query = mark < 0 ? [] : pairsOf(url.slice(mark + 1));
  const none = { inArray: [], inherited: [] };
  const type = headers['content-type'] ?? '';
  const text = body.toString('utf8');
  if (/multipart/i.test(type)) return { body: formPairs(text), query, ...none };
  if (/urlencoded/i.test(type)) return { body: pairsOf(text), query, ...none };
  const value = parsed(text);
  if (!Array.isArray(value))
    return { ...none, body: membersOf(text, value), query, inherited: inheritedBy(value) };
  const inArray = (value as unknown[]).flatMap((one) => Object.entries(one ?? {}) as Pair[]);
  return { ...none, body: [], query, inArray };
}

/** What `value` would inherit if its own `__proto__`, `constructor` and `prototype`, however deep, were such objects. */
function inheritedBy(value: unknown): Pair[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value)
    .filter(([name]) => ['__proto__', 'constructor', 'prototype'].includes(name))
    .flatMap(([, parent]) => [...Object.entries(parent ?? {}), ...inheritedBy(parent)] as Pair[]);
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

/** The members of an object, in their order, and with those that stand twice if `json` is its text. */
function membersOf(json: string, value: unknown): Pair[] {
  if (typeof value !== 'object' || value === null) return [];
  const members: Pair[] = [];
  let depth = 0;
  let name: string | undefined;
  // Tokens of JSON that is known to be right: strings, other values, and what stands between them.
  for (const [token] of json.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{}:,]|[^\s"[\]{}:,]+/gs)) {
    if (token === '{' || token === '[') depth += 1;
    if (depth === 1 && token === ',') name = undefined;
    else if (depth === 1 && name === undefined && token.startsWith('"')) name = JSON.parse(token) as string;
    else if (depth === 1 && name !== undefined && token !== ':' && token !== '{')
      members.push([name, token === ']' || token === '}' ? undefined : parsed(token)]);
    if (token === '}' || token === ']') depth -= 1;
  }
  // Lists and objects are taken from the parsed value, in which the last of two members stands.
  const nested = Object.entries(value).filter(([, one]) => typeof one === 'object');
  return [...members.filter(([, one]) => one !== undefined), ...nested];
}

/** The pairs of a query, divided at `&` and at `;`, and decoded once and twice. */
function pairsOf(query: string): Pair[] {
  return query.split(/[&;]/).flatMap((pair): Pair[] => {
    const [name = '', ...value] = pair.split('=');
    const once: Pair = [decoded(name), decoded(value.join('='))];
    const twice: Pair = [decoded(once[0]), decoded(String(once[1]))];
    return once[0] === twice[0] && once[1] === twice[1] ? [once] : [once, twice];
  });
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return text;
  }
}

/** The fields of a form, as a parser that takes any quoting finds them. */
function formPairs(text: string): Pair[] {
  return [
    ...text.matchAll(/name\s*=\s*"?([^";\r\n]*)"?[^\r\n]*\r?\n(?:[^\r\n]+\r?\n)*\r?\n([^\r\n]*)/gi),
  ].map(([, name = '', value = '']) => [name, value]);
}
