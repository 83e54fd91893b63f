import { randomUUID } from 'node:crypto';
import type { ThroughCall } from '../through-client.ts';

/** A form with a text file, as a browser sends it; with the id of a conversation before the file, if it is given. */
export function fileForm(
  { name, text }: { readonly name: string; readonly text: string },
  id?: string,
): NonNullable<ThroughCall['body']> {
  const boundary = `bot-relay-check-${randomUUID()}`;
  const part = (head: string, body: string) =>
    `--${boundary}\r\nContent-Disposition: form-data; ${head}\r\n\r\n${body}\r\n`;
  const file = part(`name="file"; filename="${name}"\r\nContent-Type: text/plain`, text);
  const form = `${id === undefined ? '' : part('name="customChannelId"', id)}${file}--${boundary}--\r\n`;
  return { type: `multipart/form-data; boundary=${boundary}`, bytes: Buffer.from(form) };
}
