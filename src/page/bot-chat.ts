import type { Config } from '../config/config.ts';
import { builtFile, builtNames, cachedFile, type Page } from './cached-file.ts';
import { pagePolicy } from './page-policy.ts';

/** What the chat knows of the relay's configuration. */
type ChatConfig = Pick<Config, 'authMode' | 'basePath' | 'bots' | 'operations' | 'chatPage' | 'chat'>;

/** What the page of the demo shows besides. */
export interface DemoChat {
  /** The bots that it offers, each `namespace/bot`. */
  readonly bots: readonly string[];
  /** Filled into the form for signing in. */
  readonly user: { readonly name: string; readonly password: string };
  /** What a user can send with one press, by the bot's `namespace/bot`. */
  readonly suggestions: Readonly<Record<string, readonly string[]>>;
}

/** The policy of the page. Attachments are shown from memory, the logo from where the operator has it. */
const policyOf = ({ logo }: ChatConfig['chat']) =>
  pagePolicy(['blob:', ...(logo === undefined ? [] : [new URL(logo).origin])]);

/** A speech bubble. */
const ICON =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path fill="#2459a9" d="M3 2h10a2 2 0 0 1 2 2v6a2 2 0 0 1-2 2H8l-4 3v-3H3a2 2 0 0 1-2-2V4a2 2 0 0 1 2-2z"/></svg>';

/** The folder of `dist/` with the element and its chunks. */
const FOLDER = 'bot-chat';
const ENTRY = 'bot-chat.js';
const TYPES: Readonly<Record<string, string>> = {
  js: 'text/javascript; charset=utf-8',
  txt: 'text/plain; charset=utf-8',
};

/**
 * The element `<bot-chat>`, what it asks of the relay, and a page that shows it: at `/` and `/chat` with `CHAT_PAGE=on`, at
 * `/` in the demo. Empty if the element is not built, since the relay can run without it.
 */
export function botChatPages(config: ChatConfig, demo?: DemoChat): Page[] {
  const files = elementFiles();
  if (files.length === 0) return [];
  const settings = JSON.stringify(settingsOf(config, demo));
  const hasPage = config.chatPage || demo !== undefined;
  return [
    ...files,
    cachedFile({ path: '/client/bot-chat.json', type: 'application/json', body: Buffer.from(settings) }),
    ...documents([...(hasPage ? ['/'] : []), ...(config.chatPage ? ['/chat'] : [])], config),
    // The links of the page are relative, so its path must end with a slash.
    ...(hasPage && config.basePath !== '' ? [{ path: '', handler: redirect(`${config.basePath}/`) }] : []),
  ];
}

/** The files of the element. What it loads later has the hash of its content in its name. */
function elementFiles(): Page[] {
  const types = Object.entries(TYPES);
  return builtNames(FOLDER).flatMap((name) => {
    const [, type] = types.find(([ending]) => name.endsWith(`.${ending}`)) ?? [];
    const [body, br, gzip] = ['', '.br', '.gz'].map((ending) => builtFile(`${FOLDER}/${name}${ending}`));
    if (!type || !body || !br || !gzip) return [];
    const isImmutable = type === TYPES.js && name !== ENTRY;
    return [cachedFile({ path: `/client/${name}`, type, body, compressed: { br, gzip }, isImmutable })];
  });
}

/** What the element asks of the relay. Without a page, nobody needs to know which bots there are. */
function settingsOf({ authMode, bots, operations, chatPage, chat }: ChatConfig, demo?: DemoChat) {
  const { title, logo, suggestions, words } = chat;
  const named = demo?.bots ?? (chatPage ? bots.filter((bot) => !bot.includes('*')) : undefined);
  const user = authMode === 'password' ? demo?.user : undefined;
  const botSuggestions = demo?.suggestions;
  return { signIn: authMode, operations, bots: named, user, title, logo, suggestions, botSuggestions, words };
}

/** The page at each of `paths`, and the files that only a page needs. */
function documents(paths: readonly string[], { chat }: ChatConfig): Page[] {
  if (paths.length === 0) return [];
  const page = Buffer.from(documentOf(chat));
  const headers = { 'Content-Security-Policy': policyOf(chat) };
  const style = Buffer.from(styleOf(chat));
  return [
    cachedFile({ path: '/client/bot-chat.svg', type: 'image/svg+xml', body: Buffer.from(ICON) }),
    cachedFile({ path: '/client/bot-chat.css', type: 'text/css; charset=utf-8', body: style }),
    ...paths.map((path) => cachedFile({ path, type: 'text/html; charset=utf-8', body: page, headers })),
  ];
}

function redirect(to: string): Page['handler'] {
  return function chatFolder(_req, res) {
    res.statusCode = 307;
    res.setHeader('Location', to);
    res.end();
  };
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
function documentOf({ title = 'Chat', lang = 'en' }: ChatConfig['chat']): string {
  const escaped = title.replace(/[&<>"']/g, (one) => `&#${one.charCodeAt(0)};`);
  return `<!doctype html>
<html lang="${lang}" dir="${lang === 'ar' ? 'rtl' : 'ltr'}">
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
      <bot-chat autofocus></bot-chat>
    </main>
  </body>
</html>
`;
}
