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
const trim = (text: string) => text.replace(/^[\s\0]+|[\s\0]+$/g, '');
const nfkc = (text: string) => text.normalize('NFKC');
const lower = (text: string) => text.toLowerCase();
/** A name as the laxest service reads it: without case, joints and width, up to where a parser sees an index or a member. */
const folded = (name: string) => lower(trim(nfkc(name.split(/[[.]/, 1)[0] ?? ''))).replace(/[^a-z]/g, '');
/** The texts in a value that may be a list, however deep. */
const listed = (value: unknown): string[] =>
  Array.isArray(value) ? (value as unknown[]).flatMap(listed) : typeof value === 'string' ? [value] : [];

/** Every id that some lax service would use, whichever of several it takes, and each as it may read it. */
function idsIn({ body, query, inArray, inherited }: Parts): string[] {
  const values = [...body, ...query, ...inArray, ...inherited]
    .filter(([name]) => NAMES.map(folded).includes(folded(name)))
    .flatMap(([, value]) => listed(value));
  return values.flatMap((id) => [
    id,
    trim(id),
    nfkc(id),
    id.slice(0, 64),
    lower(trim(nfkc(id))).slice(0, 64),
  ]);
}
/** The ids by their exact names. */
const exactIdsIn = ({ body, query }: Parts): string[] =>
  [...body, ...query].filter(([name]) => NAMES.includes(name)).flatMap(([, value]) => listed(value));

/** One request, with the ids that are found in it. */
interface LaxRequest {
  readonly target: string;
  readonly exact: readonly string[];
  readonly found: readonly string[];
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
  /** The conversation whose text is told to everyone who reaches it in any lax way. */
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
    const [exact, found] = [exactIdsIn(parts), idsIn(parts)];
    const { url = '' } = req;
    const paths = { namesBox: namesBox(url), leavesFolder: leavesFolder(parts.query) };
    requests.push({ target: url, exact, found, ...paths });
    const isReached = paths.namesBox || found.includes(service.secretId);
    const launched = exact.includes(service.secretId) ? BOXES.victim : BOXES.own;
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
