export const MESSAGE_BODY = JSON.stringify({
  customChannelId: 'channel-1',
  customMessageId: 'message-1',
  text: 'What is the weather like in Ghent today?',
  action: 'NONE',
});

/** A message to `bot` (see `../peers/upstream.ts` for the names) as it crosses the wire. */
export function messageText(bot: string, cookie = ''): string {
  const head = [
    `POST /generic/ns/bench/bot-provider/${bot}/message/sse HTTP/1.1`,
    'Host: chat.example.com',
    'Content-Type: application/json',
    'Accept: text/event-stream',
    `Content-Length: ${Buffer.byteLength(MESSAGE_BODY)}`,
    ...(cookie ? [`Cookie: ${cookie}`] : []),
  ];
  return `${head.join('\r\n')}\r\n\r\n${MESSAGE_BODY}`;
}
