/** The name of a conversation's id: in JSON and forms, and in a query. */
export type ChannelName = 'customChannelId' | 'custom_channel_id';

/** The longest name that is judged. */
export const MAX_NAME_LENGTH = 128;

/** What joins the words of a name, or stands around it. */
const BETWEEN = '[^a-z0-9]*';
const ASCII = /^\p{ASCII}*$/u;

/** Makes the test whether some service could take a name of ASCII characters for the one that has these letters. */
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
export function judgeChannelName(name: string, exact: ChannelName): NameVerdict {
  if (name === exact) return 'exact';
  if (name.length > MAX_NAME_LENGTH || !ASCII.test(name)) return 'unusable';
  return isSimilar(name) ? 'similar' : 'other';
}
