/** The name of a conversation's id: in JSON and forms, and in a query. */
export type ChannelName = 'customChannelId' | 'custom_channel_id';

/** The longest name that is judged, in UTF-16 units: to fold a long one can take seconds. */
export const MAX_NAME_LENGTH = 128;

/** So many names are remembered. */
const MAX_REMEMBERED = 1_000;

/** What joins the words of a name, or stands around it. */
const BETWEEN = '[^\\p{L}\\p{N}]*';
const ASCII = /^\p{ASCII}*$/u;

/** Makes the test whether some service could take a name for the one that has these letters. */
export function similarTo(letters: string): (name: string) => boolean {
  // Up to the end, or to a character at which some parsers end a name: `a[0]`, `a.b`, `a/b`.
  const pattern = new RegExp(`^${BETWEEN}${[...letters].join(BETWEEN)}[_-]*(?![\\p{L}\\p{N}_-])`, 'u');
  const known = new Map<string, boolean>();
  return (name) => {
    // Clients send the same names with each message.
    const before = known.get(name);
    if (before !== undefined) return before;
    if (known.size >= MAX_REMEMBERED) known.clear();
    const isSimilar = pattern.test(fold(name));
    known.set(name, isSimilar);
    return isSimilar;
  };
}

const isSimilar = similarTo('customchannelid');

type Verdict = 'exact' | 'similar' | 'too long' | 'other';

/**
 * Whether `name` is exactly that of a conversation's id, or `similar`: one that some service could take for it, since
 * it differs in case, in Unicode form, or in characters that are neither letter nor digit, or goes on behind such a
 * character. One that is `too long` is not judged.
 */
export function judgeChannelName(name: string, exact: ChannelName): Verdict {
  if (name === exact) return 'exact';
  if (name.length > MAX_NAME_LENGTH) return 'too long';
  return isSimilar(name) ? 'similar' : 'other';
}

/**
 * The letters in one case and form. Ignorable characters become spaces; spaces stand around others that end a name.
 * Upper case comes first, since some letters, such as `ı`, are changed by nothing else.
 */
function fold(name: string): string {
  if (ASCII.test(name)) return name.toLowerCase();
  return name
    .replace(/[^\p{L}\p{N}_-]/gu, ' $& ')
    .normalize('NFKD')
    .replace(/\p{Default_Ignorable_Code_Point}/gu, ' ')
    .toUpperCase()
    .toLowerCase();
}
