import type { Config } from '../config/config.ts';
import { builtFile } from './built-file.ts';
import { cachedFile } from './cached-file.ts';
import type { Page } from './chat-page.ts';
import { pagePolicy } from './page-policy.ts';

/** What the chat knows of the relay's configuration. */
type ChatConfig = Pick<Config, 'authMode' | 'bots' | 'operations' | 'chatPage' | 'chat'>;

/** Attachments are shown from memory. */
const POLICY = pagePolicy(['blob:']);

/** A speech bubble. */
const ICON =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path fill="#2459a9" d="M3 2h10a2 2 0 0 1 2 2v6a2 2 0 0 1-2 2H8l-4 3v-3H3a2 2 0 0 1-2-2V4a2 2 0 0 1 2-2z"/></svg>';

/**
 * The element `<bot-chat>` as one file, what it asks of the relay, and with `CHAT_PAGE=on` a page that shows it. Empty if
 * the element is not built, since the relay can run without it.
 */
export function botChatPages({ authMode, bots, operations, chatPage, chat }: ChatConfig): Page[] {
  const script = builtFile('bot-chat.js');
  if (!script) return [];
  const { title, suggestions, words } = chat;
  // Without the page, nobody needs to know which bots there are.
  const named = chatPage ? { bots: bots.filter((bot) => !bot.includes('*')) } : {};
  const settings = { signIn: authMode, operations, ...named, title, suggestions, words };
  const text = (path: string, type: string, content: string) => ({ path, type, body: Buffer.from(content) });
  return [
    cachedFile({ path: '/client/bot-chat.js', type: 'text/javascript; charset=utf-8', body: script }),
    cachedFile(text('/client/bot-chat.json', 'application/json', JSON.stringify(settings))),
    ...(chatPage
      ? [
          cachedFile(text('/client/bot-chat.svg', 'image/svg+xml', ICON)),
          cachedFile(text('/client/bot-chat.css', 'text/css; charset=utf-8', styleOf(chat))),
          cachedFile({
            ...text('/chat', 'text/html; charset=utf-8', documentOf(title ?? 'Chat')),
            headers: { 'Content-Security-Policy': POLICY },
          }),
        ]
      : []),
  ];
}

/** The style sheet of the page, with the colours of the operator. */
function styleOf({ colors = {} }: ChatConfig['chat']): string {
  const variables = Object.entries(colors).flatMap(([scheme, values = {}]) =>
    Object.entries(values).map(
      ([name, value]) => `  --bot-chat-${name}${scheme === 'dark' ? '-dark' : ''}: ${value};\n`,
    ),
  );
  return `html, body { block-size: 100%; margin: 0; }
h1 { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); }
main { block-size: 100dvh; }
bot-chat {
${variables.join('')}}
`;
}

/** The page: nothing but the element, whose links are relative to the relay. */
function documentOf(title: string): string {
  const escaped = title.replace(/[&<>"']/g, (one) => `&#${one.charCodeAt(0)};`);
  return `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>${escaped}</title>
    <link rel="icon" href="./client/bot-chat.svg">
    <link rel="stylesheet" href="./client/bot-chat.css">
    <script type="module" src="./client/bot-chat.js"></script>
  </head>
  <body>
    <main>
      <h1>${escaped}</h1>
      <noscript><p>This page needs JavaScript.</p></noscript>
      <bot-chat></bot-chat>
    </main>
  </body>
</html>
`;
}
