import { readFileSync } from 'node:fs';
import { z } from 'zod';

/** The names of the words that `CHAT_FILE` can replace, as the chat has them. */
export const CHAT_WORDS: ReadonlySet<string> = new Set(
  (
    'account allowAlways allowOnce attach attached bad bot cancel chatTitle chats chatsNote code ' +
    'comment commentSent connectionLost conversation copied copy copyAnswer copyId copyQuestion ' +
    'delete deleteChat deleteChatAsk deleteChatNote demoUser denied deny details edit ' +
    'empty errorAway errorBusy errorCode errorCookie errorForbidden errorLarge errorLost errorMissing ' +
    'errorOther errorPassword errorRefused errorSignedOut errorSlow errorTooMany failedAnswer file ' +
    'files formula good guest hideChats incomplete keys loading message newChat newChatAsk ' +
    'newChatNote noChats noName notCopied notUploaded nothing password provider queued regenerate ' +
    'regenerateIn remove renameChat requestId saidBot saidYou save send signIn signInAsk signOut ' +
    'signedInAs signedOut status stop stopped suggestions table toEnd tool toolDone toolInput ' +
    'toolOutput toolWants tryAgain tryAgainIn unsent uploading uploadsFirst user waiting'
  ).split(' '),
);

/** The colours of the chat, as its style sheet has them. */
export const CHAT_COLORS = {
  light: {
    ...{ accent: '#1f5fbf', 'on-accent': '#ffffff', background: '#ffffff', surface: '#f5f6f8' },
    ...{ text: '#1b1e23', muted: '#5a626d', own: '#eaf0f9', error: '#a3231b' },
  },
  dark: {
    ...{ accent: '#8fb8f6', 'on-accent': '#0d1b2f', background: '#17191d', surface: '#202329' },
    ...{ text: '#e8eaed', muted: '#a6aeb9', own: '#2a3648', error: '#ffa39a' },
  },
};

type Scheme = keyof typeof CHAT_COLORS;
type Color = keyof typeof CHAT_COLORS.light;

/** Which colours stand on which ones as text. */
const PAIRS: readonly (readonly [text: Color, behind: Color])[] = [
  ...(['text', 'muted', 'accent', 'error'] as const).flatMap((text) => [
    [text, 'background'] as const,
    [text, 'surface'] as const,
  ]),
  ['text', 'own'],
  ['accent', 'own'],
  ['on-accent', 'accent'],
];

const MAX_BYTES = 65_536;
const MAX_SUGGESTIONS = 4;
const line = z
  .string('must be a text')
  .min(1, 'must not be empty')
  .max(200, 'must have at most 200 characters');
const color = z.string('must be #rrggbb').regex(/^#[0-9a-f]{6}$/i, 'must be #rrggbb');
const names = Object.keys(CHAT_COLORS.light) as [Color, ...Color[]];
const colors = z.partialRecord(z.enum(names), color, `must have only ${names.join(', ')}`);
const onlyKnownWords: Parameters<z.ZodRecord['superRefine']>[0] = (words, context) => {
  for (const name of Object.keys(words))
    if (!CHAT_WORDS.has(name))
      context.addIssue({ code: 'custom', path: [name], message: 'is no word of the chat' });
};
const schema = z.strictObject(
  {
    title: line.optional(),
    lang: z.enum(['en', 'ar'], 'must be en or ar').optional(),
    logo: z.url({ protocol: /^https$/, error: 'must be an address that begins with https:' }).optional(),
    suggestions: z.array(line).max(MAX_SUGGESTIONS, `must be at most ${MAX_SUGGESTIONS}`).optional(),
    colors: z.strictObject({ light: colors.optional(), dark: colors.optional() }).optional(),
    words: z.record(z.string(), line).superRefine(onlyKnownWords).optional(),
  },
  'must be an object with no more than title, lang, logo, suggestions, colors and words',
);

/** What an operator says about the looks and words of the chat. */
export type ChatSettings = z.infer<typeof schema>;

/** Reads the file at `path`. Its problems name the member that is wrong. */
export function readChatFile(path: string): {
  readonly chat: ChatSettings;
  readonly problems: readonly string[];
} {
  const failed = (...problems: string[]) => ({
    chat: {},
    problems: problems.map((one) => `CHAT_FILE ${one}`),
  });
  let value: unknown;
  try {
    const text = readFileSync(path, 'utf8');
    if (text.length > MAX_BYTES) return failed(`names a file of more than ${MAX_BYTES} characters`);
    value = JSON.parse(text);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return failed(code ? `names a file that cannot be read (${code})` : 'must hold a JSON object');
  }
  const read = schema.safeParse(value);
  if (!read.success)
    return failed(
      ...read.error.issues.map(({ path, message }) => `${path.join('.') || 'its content'}: ${message}`),
    );
  const problems = (['light', 'dark'] as const).flatMap((scheme) => faintTexts(scheme, read.data));
  return problems.length > 0 ? failed(...problems) : { chat: read.data, problems: [] };
}

/** The texts that could hardly be read in these colours. */
function faintTexts(scheme: Scheme, { colors }: ChatSettings): string[] {
  const all: Readonly<Record<Color, string>> = { ...CHAT_COLORS[scheme], ...colors?.[scheme] };
  return PAIRS.flatMap(([text, behind]) => {
    const found = contrast(all[text], all[behind]);
    if (found >= LEAST_CONTRAST) return [];
    // Cut off and not rounded, so that 4.49 is not shown as 4.5.
    const shown = Math.floor(found * 100) / 100;
    return [`colors.${scheme}: ${text} on ${behind} has a contrast of ${shown}, and needs ${LEAST_CONTRAST}`];
  });
}

/** The least contrast of a text (WCAG 2.2 §1.4.3). */
const LEAST_CONTRAST = 4.5;

/** The contrast of two colours `#rrggbb`, from 1 to 21 (WCAG 2.2, "contrast ratio"). */
export function contrast(one: string, other: string): number {
  const [light = 0, dark = 0] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

function luminance(color: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const share = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
