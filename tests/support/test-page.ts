import type { IncomingMessage, ServerResponse } from 'node:http';

/** What the page records of a message that it has sent: each piece as it was read, and how it ended. */
export interface Said {
  readonly pieces: string[];
  status?: number;
  ended?: 'complete' | 'broken';
}

/** The functions and values in the `window` of the page. */
export interface PageWindow {
  /** Sends a message; resolves when its answer is over. */
  say(text: string): Promise<Said>;
  /** The message that was sent last. */
  said: Said;
}

const PAGE = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>The page</title>
<h1>The page</h1>
<script>
async function say(text) {
  const said = { pieces: [] };
  window.said = said;
  const response = await fetch('/generic/ns/acme/bot-provider/helper/message/sse', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ text }),
  });
  said.status = response.status;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) said.pieces.push(next.value);
    said.ended = 'complete';
  } catch {
    said.ended = 'broken';
  }
  return said;
}
</script>
</html>
`;

/** Answers with the page at every path that is not the relay's. Returns whether it did. */
export function answerWithPage({ url = '' }: IncomingMessage, res: ServerResponse): boolean {
  if (/^\/(auth|generic)\//.test(url)) return false;
  if (url === '/favicon.ico') res.writeHead(204).end();
  else res.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' }).end(PAGE);
  return true;
}
