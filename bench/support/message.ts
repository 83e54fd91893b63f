let messages = 0;

/** The body of a new message, always of the same length. Each has an id of its own: the same one would join its run. */
export function messageBody(): string {
  messages += 1;
  return JSON.stringify({
    customChannelId: `channel-${messages % 10}`,
    customMessageId: `${process.pid}`.padStart(8, '0') + `${messages}`.padStart(12, '0'),
    text: 'What is the weather like in Ghent today?',
    action: 'NONE',
  });
}

/** The key that every peer must add. Without it the upstream answers 401. */
export const API_KEY = 'bench-api-key';

/** The user that signs in at the peers that have sessions. */
export const USER = { username: 'bench', password: 'bench-password-0f3a' };

/** A message to `bot` (names: `../peers/upstream.ts`) as it is sent on a connection; `headers` are whole lines. */
export function messageText(bot: string, headers: readonly string[] = []): string {
  const body = messageBody();
  const head = [
    `POST /generic/ns/bench/bot-provider/${bot}/message/sse HTTP/1.1`,
    'Host: chat.example.com',
    'Content-Type: application/json',
    'Accept: text/event-stream',
    `Content-Length: ${Buffer.byteLength(body)}`,
    ...headers,
  ];
  return `${head.join('\r\n')}\r\n\r\n${body}`;
}
