import { OPERATIONS, type Operation } from '../../../src/relay/operations/operation-table.ts';
import { BOXES } from '../service/lax-service.ts';

/** One try to reach another user's conversation. */
export interface Attack {
  readonly method: string;
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | undefined;
}

type Random = () => number;
type Pick = <One>(list: readonly One[]) => One;

/** Half of the rows are those of sandboxes: the others are tried more often. */
const ROWS = [...OPERATIONS, ...OPERATIONS.filter(({ group }) => group !== 'sandbox')];
const SHAPES = ['/ns', '/generic/ns'];
/** The id's name in bodies, and in queries. Each is tried in the other place, too. */
const IN_BODY = ['customChannelId', 'customChannelId', 'customChannelId', 'custom_channel_id'];
const IN_QUERY = ['custom_channel_id', 'custom_channel_id', 'custom_channel_id', 'customChannelId'];
/** Names of sandboxes as they stand in a path. */
const BOX_NAMES = [
  ...Array.from({ length: 6 }, () => BOXES.own),
  ...Array.from({ length: 6 }, () => BOXES.victim),
  ...[BOXES.victim.toUpperCase(), 'victims%2Dbox', '%76ictims-box', '%2576ictims-box', 'victims%E2%80%90box'],
  ...[
    '%EF%BD%96ictims-box',
    'victims-box%00',
    '%20victims-box',
    'victims-box%20',
    'victims-box%2F',
    'victims-box.',
  ],
  ...[
    'own-box%2F..%2Fvictims-box',
    'own-box%252f..%252fvictims-box',
    'own-box/../victims-box',
    'own-box%5C..%5Cvictims-box',
  ],
  ...[
    'own-box;victims-box',
    'own-box,victims-box',
    'own-box%3Fx=victims-box',
    'victims-box%23',
    '..',
    '%2e%2e',
  ],
];
/** Paths of files in a query. */
const PATHS = [
  ...Array.from({ length: 12 }, () => '%2Fa'),
  ...[
    '..',
    '%2F..%2Fvictims-box',
    '%2e%2e',
    '%252e%252e%252f',
    '%2Fa%5C..%5Cb',
    '%2Fa%00',
    '%2F%c0%ae%c0%ae%2F',
    '',
  ],
  ...['%2Fa&path=..', '%2Fa&dst=%2F..', '%2Fa%26custom_channel_id%3Dx', '%2Fa&sandbox=victims-box'],
];
/** Letters that some fold or normal form takes for one of the name. */
const LIKE: Readonly<Record<string, string>> = {
  s: 'ſ',
  C: 'Ｃ',
  c: 'ⅽ',
  l: 'ⅼ',
  m: 'ⅿ',
  d: 'ⅾ',
  I: 'İ',
  h: 'ｈ',
  _: '＿',
};

const CHANGES: readonly ((name: string, pick: Pick) => string)[] = [
  ...Array.from({ length: 8 }, () => (name: string) => name),
  (name) => name.toUpperCase(),
  (name) => name.toLowerCase(),
  (name) => name[0]?.toUpperCase() + name.slice(1),
  (name, pick) => {
    const letters = Object.keys(LIKE).filter((letter) => name.includes(letter));
    const letter = pick(letters);
    return name.replace(letter, LIKE[letter] ?? letter);
  },
  (name, pick) =>
    name + pick(['[]', '[0]', '[$eq]', '.', '.id', '\0', ' ', '\t', '\u200b', '\u00a0', '\ufeff']),
  (name, pick) => pick([' ', '\n', '\u2003', '\ufeff', '_', '-', '\u00ad']) + name,
  (name, pick) => {
    const at = pick([1, 6, 7, 13]);
    return name.slice(0, at) + pick(['_', '-', '\u200d', '\u00ad', '\u0301', ' ', '.']) + name.slice(at);
  },
  (name) => name.replaceAll('_', '-'),
  (name) => encodeURIComponent(name).replace('C', '%43').replace('_', '%5f'),
];

/** Makes tries to name the conversation `victim.id`, which the bot service knows as `victim.upstream`. */
export function conversationAttacks(
  victim: { readonly id: string; readonly upstream: string },
  seed: number,
) {
  const random = randomOf(seed);
  const pick: Pick = (list) => list[Math.floor(random() * list.length)] as (typeof list)[number];
  const idText = () => changedId(pick([victim.id, victim.upstream]), pick);
  const idName = (names: readonly string[]) => pick(CHANGES)(pick(names), pick);
  const makers = { pick, idText, idName };
  return function next(): Attack {
    const row = pick(ROWS);
    const path = row.path.replace(':sandbox', () => pick([...BOX_NAMES, victim.upstream]));
    const body =
      row.method === 'GET' || (row.channel === 'query' && !row.takesFile)
        ? maybe(random, row.group === 'sandbox' ? 0.01 : 0.1, jsonBody, makers)
        : bodyOf(row, makers);
    const pathsOf = Object.entries(row.query ?? {}).filter(([, { required }]) => required);
    const paths = pathsOf.map(([name]) => `&${name}=${pick(PATHS)}`).join('');
    const query = row.channel === 'query' || random() < 0.3 ? `?${queryOf(makers)}${paths}` : '';
    const base = `${pick(SHAPES)}/acme/bot-provider/helper/${path}`;
    return {
      method: row.method,
      target: strangePath(base, pick) + query,
      headers: {
        ...(body && { 'Content-Type': body.type }),
        ...(random() < 0.05 && { 'Last-Event-ID': pick(['1', victim.upstream]) }),
        ...(random() < 0.05 && { 'X-ASGARD-USER-IDENTITY-HINT': 'ada' }),
        ...(random() < 0.05 && { 'X-HTTP-Method-Override': pick(['GET', 'DELETE']) }),
      },
      body: body?.bytes,
    };
  };
}

interface Makers {
  readonly pick: Pick;
  readonly idText: () => string;
  readonly idName: (names: readonly string[]) => string;
}

interface Body {
  readonly type: string;
  readonly bytes: Buffer;
}

function maybe<Value>(random: Random, chance: number, make: (makers: Makers) => Value, makers: Makers) {
  return random() < chance ? make(makers) : undefined;
}

function changedId(id: string, pick: Pick): string {
  const around = pick([' ', '\0', '\t', '\u00a0', '\u200b', '\ufeff', '\u0301', '\ud800']);
  return pick([
    ...Array.from({ length: 8 }, () => id),
    id.toUpperCase(),
    id + around,
    around + id,
    id.replaceAll('a', 'ａ'),
    id.replaceAll('1', '¹'),
    id + 'x'.repeat(pick([1, 64, 150, 10_000])),
    `${id},${id}`,
    encodeURIComponent(encodeURIComponent(`${id}/`)),
    `"${id}"`,
    `${id}&custom_channel_id=${id}`,
    `x\r\ncustom_channel_id: ${id}`,
  ]);
}

function bodyOf(row: Operation, makers: Makers): Body {
  const { pick } = makers;
  const make = row.channel === 'query' ? fileBody : row.channel === 'form' ? formBody : jsonBody;
  return pick([...Array.from({ length: 20 }, () => make), jsonBody, formBody])(makers);
}

/** A text as JSON, with some of its characters escaped. */
const escaped = (text: string, pick: Pick) =>
  pick([0, 1]) === 0
    ? JSON.stringify(text)
    : `"${[...text].map((one) => (one.length === 1 && pick([0, 1]) ? `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}` : JSON.stringify(one).slice(1, -1))).join('')}"`;

function jsonBody({ pick, idText, idName }: Makers): Body {
  const id = () => escaped(idText(), pick);
  const value = pick([
    id,
    id,
    id,
    () => `[${id()}]`,
    () => `[[${id()}],"x"]`,
    () => `{"$eq":${id()}}`,
    () => 'null',
  ])();
  const evil = `${escaped(idName(IN_BODY), pick)}:${value}`;
  const own = '"customChannelId":"own"';
  const text = '"text":"hi","action":"NONE"';
  const space = pick(['', ' ', '\n\t', '\r\n']);
  const json = pick([
    () => `{${text},${evil}}`,
    () => `{${own},${text},${evil}}`,
    () => `{${evil},${text},${own}}`,
    () => `{${evil},${evil},${text}}`,
    () => `{${text},"payload":{${evil}},${own}}`,
    () => `{${text},"payload":"}","x":[{"a":"\\\\"}],${own},${evil}}`,
    () => `{${text},"__proto__":{${evil}},${own}}`,
    () => `{${text},"constructor":{"prototype":{${evil}}}}`,
    () => `{${text},"prototype":{${evil}}}`,
    () => `[{${evil}}]`,
    () => `[{${own}},{${evil},${text}}]`,
    () => `${JSON.stringify(`{${evil}}`)}`,
    () => `{${text},${own}}{${evil}}`,
    () => `{${text},${own}}//${evil}`,
    () => `{"a":${'['.repeat(200)}${']'.repeat(200)},${evil}}`,
    () => `{"${'a'.repeat(pick([100, 20_000]))}":1,${evil}}`,
    () => `{${own},"customChannelId":${id()},"customChannelId":"own"}`,
  ])();
  const bytes = Buffer.from(space + json + space, pick(['utf8', 'utf8', 'utf8', 'utf8', 'utf16le']));
  const marked = pick([0, 0, 0, 1]) ? Buffer.concat([Buffer.from('\ufeff'), bytes]) : bytes;
  const type = pick(['', '', '', '; charset=utf-8', '; charset=utf-16le', ', multipart/form-data']);
  return { type: `application/json${type}`, bytes: marked };
}

/** A form with nothing but a file. */
function fileBody(): Body {
  const part = '--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nbytes\r\n--b--';
  return { type: 'multipart/form-data; boundary=b', bytes: Buffer.from(part) };
}

function formBody({ pick, idText, idName }: Makers): Body {
  const part = (name: string, value: string) =>
    `--b\r\nContent-Disposition: form-data; name=${pick(['', '"'])}${name}${pick(['', '"'])}${pick(['', '; filename="x"'])}\r\n\r\n${value}\r\n`;
  const file = part('file', 'bytes');
  const [own, evil] = [part('customChannelId', 'own'), part(idName(IN_BODY), idText())];
  const text = pick([
    `${file}${evil}--b--`,
    `${own}${file}${evil}--b--`,
    `${evil}${file}${own}--b--`,
    `${file}${own}--b--\r\n${evil}--b--`,
    `${evil}${evil}--b--`,
  ]);
  const type = pick(['multipart/form-data; boundary=b', 'multipart/form-data; boundary="b"; boundary=c']);
  return { type, bytes: Buffer.from(text) };
}

function queryOf({ pick, idText, idName }: Makers): string {
  const name = () => encoded(idName(IN_QUERY), pick);
  const value = () => encoded(idText(), pick);
  const own = 'custom_channel_id=own';
  const evil = () => `${name()}=${value()}`;
  return pick([
    () => evil(),
    () => `${own}&${evil()}`,
    () => `${evil()}&${own}`,
    () => `${own};${evil()}`,
    () => `${own}&request_id=${value()}`,
    () => `${own}&request_id=x%26${evil()}`,
    () => `${own}%26${evil()}`,
    () => `${own}#${evil()}`,
    () => `${own}?${evil()}`,
    () => `${own}&is_debug=true&x=1&${evil()}`,
    () => `&&${evil()}&`,
    () => `${name()}`,
  ])();
}

/** The text in percent-encoding: as it must be, of every byte, twice, or broken. */
function encoded(text: string, pick: Pick): string {
  const plain = encodeURIComponent(text.toWellFormed());
  const everyByte = () =>
    [...Buffer.from(text)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('');
  return pick([
    () => plain,
    () => plain,
    everyByte,
    () => encodeURIComponent(plain),
    () => plain.replaceAll('%20', '+'),
    () => `${plain}%ff`,
    () => `${plain}%c0%80`,
    () => `${plain}%`,
  ])();
}

function strangePath(path: string, pick: Pick): string {
  return pick([
    ...Array.from({ length: 60 }, () => path),
    path.replace('acme', 'ac%6de'),
    path.replace('helper', 'helper%2f..%2fhelper'),
    `${path}/`,
    `/${path}`,
    path.replace('bot-provider', 'Bot-Provider'),
    path.replace('/helper/', '/helper//'),
  ]);
}

/** Random numbers from 0 to 1 that are the same for the same seed (mulberry32). */
function randomOf(seed: number): Random {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
