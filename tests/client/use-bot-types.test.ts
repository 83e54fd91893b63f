import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';

// A compiler takes its time on a busy machine.
jest.setTimeout(90_000);

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));
const MODULES = join(PROJECT, 'node_modules');

/** A component that uses all there is. */
const COMPONENT = `
import { type Bot, type ChatMessage, RelayError, useBot, type UseBotOptions } from 'bot-relay/react';

const options: UseBotOptions = { baseUrl: '', namespace: 'ns', botProviderName: 'bot' };
function Row({ message }: { message: ChatMessage }) {
  const { id, from, text, state, error, requestId } = message;
  return <li id={String(id)} className={from} data-state={state} title={error?.message ?? requestId}>{text}</li>;
}
export function Chat() {
  const bot: Bot = useBot({
    ...options,
    silenceMs: 60_000,
    read: ({ event, data, id }) => (event === 'said' ? { add: String(data), part: id } : undefined),
  });
  const { messages, status, error, session, send, stop, signIn, signInAsGuest, signInUrl, signOut } = bot;
  const sent: Promise<void> = send('Hello');
  const leave = async () => {
    const { logoutUrl } = await signOut();
    if (logoutUrl) location.assign(logoutUrl);
  };
  if (session === null) return <a href={signInUrl('/chat')} onClick={() => signIn('a', 'b').then(signInAsGuest)}>In</a>;
  return (
    <form onSubmit={() => void sent}>
      {session?.user.name} {status === 'streaming'} {error instanceof RelayError && error.retryAfter}
      <button onClick={stop}>Stop</button><button onClick={leave}>Out</button>
      <ul>{messages.map((message) => <Row key={message.id} message={message} />)}</ul>
    </form>
  );
}
`;

/** Each is one mistake. */
const MISTAKES = [
  "useBot({ baseUrl: '', namespace: 'ns' })",
  "useBot({ baseUrl: '', namespace: 'ns', botProviderName: 'bot', apiKey: 'key' })",
  'useBot(options).send(5)',
  "useBot(options).status === 'done'",
  'useBot(options).session.user',
  "useBot(options).messages.push({ id: 1, from: 'user', text: '', state: 'done' })",
  "useBot({ ...options, read: () => 'text' })",
];

describe.each([
  ['18', 'types-react-18'],
  ['19', '@types/react'],
])('the types of useBot, in a project with the types of React %s', (_, types) => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'bot-relay-consumer-'));
    mkdirSync(join(folder, 'node_modules/@types'), { recursive: true });
    symlinkSync(PROJECT, join(folder, 'node_modules/bot-relay'));
    symlinkSync(join(MODULES, types), join(folder, 'node_modules/@types/react'));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  function check(source: string, settings: object) {
    const compilerOptions = {
      ...{
        strict: true,
        noEmit: true,
        jsx: 'react-jsx',
        target: 'es2022',
        lib: ['es2022', 'dom', 'dom.iterable'],
      },
      ...{ types: [], skipLibCheck: false, exactOptionalPropertyTypes: true, ...settings },
    };
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['chat.tsx'] }));
    writeFileSync(join(folder, 'chat.tsx'), source);
    const tsc = join(MODULES, 'typescript/bin/tsc');
    return spawnSync(process.execPath, [tsc, '-p', folder], { encoding: 'utf8' }).stdout;
  }

  test.each(['bundler', 'nodenext'])('fit a component that uses all of it (%s)', (moduleResolution) => {
    const module = moduleResolution === 'nodenext' ? 'nodenext' : 'esnext';
    expect(check(COMPONENT, { module, moduleResolution })).toBe('');
  });

  test('refuse what is wrong', () => {
    const lines = MISTAKES.map((mistake) => `// @ts-expect-error\n${mistake};`).join('\n');
    const source = `import { useBot, type UseBotOptions } from 'bot-relay/react';
      export function wrong(options: UseBotOptions) {\n${lines}\n}`;
    expect(check(source, { module: 'esnext', moduleResolution: 'bundler' })).toBe('');
  });
});
