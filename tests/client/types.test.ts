import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type Consumer, makeConsumer } from '../support/consumer.ts';

const TSC = fileURLToPath(new URL('../../node_modules/typescript/bin/tsc', import.meta.url));

const PROGRAM = `
import {
  type BotClient, type BotEvent, createBotClient, type MessageState, type MessageStream, RelayError, type Session,
} from 'bot-relay/client';

const client: BotClient = createBotClient({ baseUrl: '/chat-api', namespace: 'acme', botProviderName: 'helper' });
createBotClient({ baseUrl: '', namespace: 'a', botProviderName: 'b', silenceMs: 30_000, fetch: globalThis.fetch });
// @ts-expect-error: a page has no key
createBotClient({ baseUrl: '', namespace: 'a', botProviderName: 'b', apiKey: 'k' });
// @ts-expect-error: the bot has a name
createBotClient({ baseUrl: '', namespace: 'a' });

client.addEventListener('signed-out', () => {});

export async function talk(): Promise<string> {
  const session: Session = await client.signIn('ada', 'secret');
  const same: Session | undefined = await client.session();
  const guest: Session = await client.signInAsGuest();
  const states: MessageState[] = [];
  const stop = new AbortController();
  const stream: MessageStream = client.send('Hello', { signal: stop.signal, onState: (state) => states.push(state) });
  const requestId: string | undefined = stream.requestId;
  try {
    for await (const event of stream) {
      const kind: string = event.event;
      const id: string | undefined = event.id;
      // @ts-expect-error: what data are is the bot's business
      const text: string = event.data;
      states.push(stream.state);
      void [kind, id, text];
    }
    for await (const event of client.send({ text: 'Hello', customChannelId: 'c' })) void (event satisfies BotEvent);
  } catch (error) {
    if (!(error instanceof RelayError)) throw error;
    const known: { message: string; code: string; status: number } = error;
    const retryAfter: number | undefined = error.retryAfter;
    if (error.code === 'connection_lost' || error.code === 'rate_limited') return error.requestId ?? '';
    // @ts-expect-error: errors stay as they are
    error.code = 'x';
    void [known, retryAfter];
  }
  const { logoutUrl }: { readonly logoutUrl: string | null } = await client.signOut();
  return [session.user.id, same?.user.name, guest.idleExpiresAt, requestId, logoutUrl].join(client.signInUrl('/'));
}
`;

const STRICT = {
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  noImplicitOverride: true,
  noUnusedLocals: true,
  noPropertyAccessFromIndexSignature: true,
  isolatedModules: true,
  verbatimModuleSyntax: true,
  skipLibCheck: false,
  noEmit: true,
  target: 'es2022',
};
const BUNDLER = { module: 'esnext', moduleResolution: 'bundler' };
const NODE = { module: 'nodenext', moduleResolution: 'nodenext' };

let consumer: Consumer;
beforeAll(() => {
  consumer = makeConsumer(['eventsource-parser', '@types/node', 'undici-types']);
}, 60_000);
afterAll(() => consumer.remove());

describe('the types of bot-relay/client are good in a strict project', () => {
  test.each([
    ['of a page, without the types of Node', { ...BUNDLER, lib: ['es2022', 'dom'], types: [] }],
    ['of Node, without the types of browsers', { ...NODE, lib: ['es2022'], types: ['node'] }],
    ['with both', { ...NODE, lib: ['es2022', 'dom', 'dom.iterable'], types: ['node'] }],
  ])(
    '%s',
    (_, options) => {
      consumer.write({
        'package.json': JSON.stringify({ type: 'module' }),
        'tsconfig.json': JSON.stringify({ compilerOptions: { ...STRICT, ...options }, files: ['page.ts'] }),
        'page.ts': PROGRAM,
      });
      const { stdout, status } = spawnSync(process.execPath, [TSC, '-p', consumer.folder], {
        encoding: 'utf8',
      });
      expect({ stdout, status }).toEqual({ stdout: '', status: 0 });
    },
    60_000,
  );
});
