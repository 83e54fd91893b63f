import { z } from 'zod';
import { secret } from '../secret.ts';

// Schemas of bots and keys, for variables and files. No message contains a configured value.

/** The highest number of messages in one window that can be configured for a bot. */
export const MAX_RATE_LIMIT = 1_000_000;

/** A list of at least one item; empty and duplicate items are removed. */
export function listOf<T>(item: z.ZodType<T, string>, separator: RegExp = /,/) {
  return z
    .string()
    .transform((text) =>
      [...new Set(text.split(separator).map((part) => part.trim()))].filter((part) => part !== ''),
    )
    .pipe(z.array(item).min(1, { message: 'must not be an empty list' }));
}

/** The text of a secret that can be sent in a header. */
export const headerText = z
  .string()
  .regex(/^[\x21-\x7e]+$/, 'holds a value with white space or characters that no header can carry');

/** Such a text as a `Secret`. */
export const headerSecret = headerText.transform(secret);

/** Keys separated by commas or line ends. */
export const apiKeyList = listOf(headerSecret, /[,\n]/);

const BOT_SEGMENT = /^(\*|(?!\.{1,2}$)[^/\s%\\*]+)$/;

/** `namespace/bot`; `*` may stand for one whole segment. */
export const botPattern = z
  .string()
  .refine((text) => /^[^/]*\/[^/]*$/.test(text) && text.split('/').every((part) => BOT_SEGMENT.test(part)), {
    message: 'must be namespace/bot pairs separated by commas; * may stand for one whole segment',
  });
