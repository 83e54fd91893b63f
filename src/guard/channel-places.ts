import { Problem } from '../errors.ts';
import { type JsonMember, jsonMembers } from '../http/json.ts';

/** The longest id of a conversation, in UTF-16 units. */
const MAX_ID_LENGTH = 256;
/** The most top-level members of a body, or parameters of a query, whose names are judged. */
const MAX_NAMES = 1_000;

/** The id of a conversation in a body of JSON, and where its value stands. */
interface PlacedChannel {
  readonly id: string;
  readonly from: number;
  readonly to: number;
}

/**
 * The id of the conversation in `json`, which has been parsed before; `undefined` if it has none. `members` are those of
 * `json`, if they are known.
 * @throws Problem `invalid_conversation` if it is not a usable id, stands twice, or has a name that is only similar; and if
 *   `json` has more than 1,000 members, or one whose name is not one of at most 128 ASCII characters
 */
export function channelInJson(json: Buffer, members = namedMembers(json)): PlacedChannel | undefined {
  const found = onlyExact('customChannelId', members);
  if (!found) return undefined;
  const { from, to } = found;
  return { id: usableId(JSON.parse(json.toString('utf8', from, to))), from, to };
}

/** The top-level members of `json`: one more than are allowed, at most. */
export function namedMembers(json: Buffer): readonly JsonMember[] {
  return jsonMembers(json, MAX_NAMES + 1);
}

/** The body with another id in its place. Every other byte stays. */
export function withChannel(json: Buffer, { from, to }: PlacedChannel, id: string): Buffer {
  const text = JSON.stringify(id);
  const length = Buffer.byteLength(text);
  const changed = Buffer.allocUnsafe(from + length + json.length - to);
  json.copy(changed, 0, 0, from);
  changed.write(text, from);
  json.copy(changed, from + length, to);
  return changed;
}

/**
 * The id of the conversation in the query of `url`; `undefined` if it has none.
 * @throws Problem `invalid_conversation` as `channelInJson`, `invalid_query` if the query is not encoded UTF-8
 */
export function channelInQuery(url: string): string | undefined {
  const found = onlyExact('custom_channel_id', queryOf(url));
  return found && usableId(found.value);
}

/**
 * The id of the conversation in the text `name` of a form.
 * @throws Problem `invalid_form` if the text is something else, `invalid_conversation` as `channelInJson`
 */
export function channelInForm(name: string, value: string): string {
  const found = onlyExact('customChannelId', [{ name, value }]);
  if (!found) throw new Problem('invalid_form', 'The form may hold a file and customChannelId only.');
  return usableId(found.value);
}

/**
 * The member or parameter with the exact name. A second one, or a similar name, is refused: services differ in which
 * they take.
 */
function onlyExact<One extends { readonly name: string }>(
  exact: ChannelName,
  named: readonly One[],
): One | undefined {
  if (named.length > MAX_NAMES) throw invalid(`There may be ${MAX_NAMES} names at most.`);
  let found: One | undefined;
  let isTwice = false;
  let isSimilar = false;
  for (const one of named) {
    const verdict = judgeChannelName(one.name, exact);
    if (verdict === 'unusable') throw invalid(`A name may have ${MAX_NAME_LENGTH} ASCII characters at most.`);
    if (verdict === 'similar') isSimilar = true;
    if (verdict !== 'exact') continue;
    isTwice = found !== undefined;
    found = one;
  }
  if (isSimilar) throw invalid(`The conversation's id must be named ${exact}.`);
  if (isTwice) throw invalid(`${exact} stands more than once.`);
  return found;
}

/** The decoded names and values of a query, in which `+` is a space. Broken UTF-8 is refused and not replaced. */
function queryOf(url: string): { readonly name: string; readonly value: string }[] {
  const mark = url.indexOf('?');
  if (mark < 0) return [];
  try {
    return url
      .slice(mark + 1)
      .split('&')
      .map((pair) => {
        const [name = '', ...value] = pair.replaceAll('+', ' ').split('=');
        return { name: decodeURIComponent(name), value: decodeURIComponent(value.join('=')) };
      });
  } catch {
    throw new Problem('invalid_query', 'The query is not UTF-8 in percent-encoding.');
  }
}

/** Whether the value can be the id of a conversation. */
export function isUsableId(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && value.length <= MAX_ID_LENGTH && value.isWellFormed();
}

function usableId(value: unknown): string {
  if (isUsableId(value)) return value;
  throw invalid(`The conversation's id must be a text of 1 to ${MAX_ID_LENGTH} characters.`);
}

function invalid(detail: string): Problem {
  return new Problem('invalid_conversation', detail);
}

/** The name of a conversation's id: in JSON and forms, and in a query. */
type ChannelName = 'customChannelId' | 'custom_channel_id';

/** The longest name that is accepted. */
const MAX_NAME_LENGTH = 128;

/** What may stand between two letters of a name, or before it. */
const BETWEEN = '[^a-z0-9]*';
const ASCII = /^\p{ASCII}*$/u;

/** Makes the test whether some service could take a name of ASCII characters for the one with these letters. */
export function similarTo(letters: string): (name: string) => boolean {
  // Up to the end, or to a character at which some parsers end a name: `a[0]`, `a.b`, `a/b`.
  const pattern = new RegExp(`^${BETWEEN}${[...letters].join(BETWEEN)}[_-]*(?![a-z0-9_-])`, 'i');
  return (name) => pattern.test(name);
}

const isSimilar = similarTo('customchannelid');

type NameVerdict = 'exact' | 'similar' | 'unusable' | 'other';

/**
 * Whether `name` is exactly that of a conversation's id, or `similar`: one that some service could take for it, since
 * it differs in case, or in characters that are neither letter nor digit, or goes on behind such a character. One that
 * is too long, or not ASCII, is `unusable`.
 */
function judgeChannelName(name: string, exact: ChannelName): NameVerdict {
  if (name === exact) return 'exact';
  if (name.length > MAX_NAME_LENGTH || !ASCII.test(name)) return 'unusable';
  return isSimilar(name) ? 'similar' : 'other';
}
