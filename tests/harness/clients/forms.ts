/** One part of a form, as it crosses the wire. */
export interface FormPart {
  readonly head: readonly string[];
  readonly body: string | Buffer;
}

const BOUNDARY = 'client boundary';
export const FORM_TYPE = `multipart/form-data; boundary="${BOUNDARY}"`;

export const filePart = (body: string | Buffer, disposition = 'name="file"; filename="a.txt"'): FormPart => ({
  head: [`Content-Disposition: form-data; ${disposition}`, 'Content-Type: text/plain'],
  body,
});
export const textPart = (value: string | Buffer, name = 'customChannelId'): FormPart => ({
  head: [`Content-Disposition: form-data; name="${name}"`],
  body: value,
});

/** A whole form of `parts`, or one without its end. */
export function formOf(parts: readonly FormPart[], end = `--${BOUNDARY}--\r\n`): Buffer {
  return Buffer.concat([
    ...parts.flatMap(({ head, body }) => [
      Buffer.from(`--${BOUNDARY}\r\n${head.join('\r\n')}\r\n\r\n`),
      Buffer.from(body as string),
      Buffer.from('\r\n'),
    ]),
    Buffer.from(end),
  ]);
}

/** The parts of a form that the relay has written. Throws if it is not exactly such a form. */
export function partsOf(body: Buffer, contentType = ''): { head: string; body: string }[] {
  const [, boundary = ''] =
    /^multipart\/form-data; boundary=(bot-relay-[0-9a-f]{32})$/.exec(contentType) ?? [];
  const text = body.toString('latin1');
  const begin = `--${boundary}\r\n`;
  const end = `\r\n--${boundary}--\r\n`;
  if (boundary === '' || !text.startsWith(begin) || !text.endsWith(end))
    throw new Error('this is no such form');
  return text
    .slice(begin.length, -end.length)
    .split(`\r\n${begin}`)
    .map((part) => {
      const at = part.indexOf('\r\n\r\n');
      return { head: part.slice(0, at), body: part.slice(at + 4) };
    });
}
