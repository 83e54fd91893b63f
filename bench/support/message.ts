export const MESSAGE_BODY = JSON.stringify({
  customChannelId: 'channel-1',
  customMessageId: 'message-1',
  text: 'What is the weather like in Ghent today?',
  action: 'NONE',
});

/** The key that every peer has to add, and without which the upstream answers 401. */
export const API_KEY = 'bench-api-key';

/** A message to `bot` (see `../peers/upstream.ts` for the names) as it crosses the wire; `headers` are whole lines. */
export function messageText(bot: string, headers: readonly string[] = []): string {
  const head = [
    `POST /generic/ns/bench/bot-provider/${bot}/message/sse HTTP/1.1`,
    'Host: chat.example.com',
    'Content-Type: application/json',
    'Accept: text/event-stream',
    `Content-Length: ${Buffer.byteLength(MESSAGE_BODY)}`,
    ...headers,
  ];
  return `${head.join('\r\n')}\r\n\r\n${MESSAGE_BODY}`;
}
