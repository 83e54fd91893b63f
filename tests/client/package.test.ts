import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { buildSync } from 'esbuild';
import { publint } from 'publint';
import { type Consumer, TARBALL } from '../harness/clients/consumer.ts';
import {
  AI_SDK,
  compileIn,
  EVENTS,
  NODE_ALONE,
  NODE_PAGE,
  PAGE,
  typedConsumer,
} from '../harness/clients/typed-consumer.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { ROOT } from '../harness/documents/sources.ts';

// The compilers are slow on a busy machine.
jest.setTimeout(90_000);

let consumer: Consumer;
beforeAll(() => {
  consumer = typedConsumer();
});
afterAll(() => consumer.remove());

/** What a program in the project prints. */
const printed = (program: string) =>
  execFileSync(process.execPath, ['--input-type=module', '-e', program], {
    cwd: consumer.folder,
    encoding: 'utf8',
  }).trim();

describe('the package', () => {
  const manifest = () =>
    JSON.parse(
      readFileSync(join(consumer.folder, 'node_modules/bot-relay-client/package.json'), 'utf8'),
    ) as Record<string, unknown>;

  test("has four entries, the relay's version, and needs no other package", () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
    expect(manifest()).toMatchObject({
      name: 'bot-relay-client',
      version,
      type: 'module',
      sideEffects: ['./element.js'],
    });
    expect(Object.keys(manifest().exports as object)).toEqual([
      '.',
      './react',
      './element',
      './ai-sdk',
      './package.json',
    ]);
    expect(manifest()).not.toHaveProperty('dependencies');
    expect(manifest()).toMatchObject({
      peerDependencies: { react: '>=18' },
      peerDependenciesMeta: { react: { optional: true } },
    });
  });

  test('exports the same RelayError from each entry, and finds one channel from both that make it', () => {
    expect(printed("console.log(Object.keys(await import('bot-relay-client')).sort().join());")).toBe(
      'RelayError,createBotClient,createChannel,textOf',
    );
    const ofBoth = `
      const [{ RelayError }, react] = await Promise.all([import('bot-relay-client'), import('bot-relay-client/react')]);
      const error = new RelayError('No.', { code: 'unreachable', status: 0 });
      console.log(Object.keys(react).sort().join(), error instanceof react.RelayError);`;
    expect(printed(ofBoth)).toBe(
      'BotProvider,RelayError,createBotClient,createChannel,textOf,useBot,useBotClient,useSession true',
    );
    const channels = `
      const [main, react] = await Promise.all([import('bot-relay-client'), import('bot-relay-client/react')]);
      const client = main.createBotClient({ baseUrl: 'http://127.0.0.1:9', namespace: 'ns', botProviderName: 'bot' });
      console.log(main.createChannel(client, { id: 'one' }) === react.createChannel(client, { id: 'one' }));`;
    expect(printed(channels)).toBe('true');
    const ofAiSdk = `
      const [{ RelayError }, sdk] = await Promise.all([import('bot-relay-client'), import('bot-relay-client/ai-sdk')]);
      console.log(Object.keys(sdk).sort().join(), RelayError === sdk.RelayError);`;
    expect(printed(ofAiSdk)).toBe('RelayError,botChatTransport true');
  });

  test('has an element that a server can import, where it does nothing', () => {
    const program = "console.log(Object.keys(await import('bot-relay-client/element')).join());";
    expect(printed(program)).toBe('BotChatElement');
  });

  test('has the notice of the library that it contains', () => {
    const own = join(consumer.folder, 'node_modules/bot-relay-client');
    const library = join(ROOT, 'node_modules/eventsource-parser');
    const { version } = JSON.parse(readFileSync(join(library, 'package.json'), 'utf8')) as {
      version: string;
    };
    const notices = readFileSync(join(own, 'NOTICES.txt'), 'utf8');
    expect(notices).toContain(`eventsource-parser ${version}`);
    expect(notices).toContain(readFileSync(join(library, 'LICENSE'), 'utf8'));
    expect(readFileSync(join(own, 'LICENSE'), 'utf8')).toBe(readFileSync(join(ROOT, 'LICENSE'), 'utf8'));
  });

  test('is found by publint to be well made', async () => {
    const tarball = Uint8Array.from(readFileSync(TARBALL)).buffer;
    const { messages } = await publint({ pack: { tarball }, strict: true });
    expect(messages).toEqual([]);
  });
});

/** What a page loads that uses these exports. */
function bundled(contents: string) {
  const { metafile, outputFiles } = buildSync({
    stdin: { contents, resolveDir: consumer.folder },
    bundle: true,
    minify: true,
    format: 'esm',
    platform: 'browser',
    external: ['react'],
    logLevel: 'error',
    metafile: true,
    write: false,
    outdir: consumer.folder,
    absWorkingDir: ROOT,
  });
  const text = String(outputFiles?.[0]?.text);
  return { text, metafile };
}

describe('in a page', () => {
  const CLIENT = "export { createBotClient } from 'bot-relay-client';";

  test('the client needs nothing of Node.js, and the transport of the AI SDK no upload', () => {
    const { text, metafile } = bundled(CLIENT);
    expect(Object.values(metafile?.outputs ?? {}).flatMap(({ imports }) => imports)).toEqual([]);
    expect(text).not.toMatch(/\brequire\(|\bprocess\.|\bBuffer\b/);
    const transport = bundled(`${CLIENT} export { botChatTransport } from 'bot-relay-client/ai-sdk';`);
    expect(transport.text).not.toContain('XMLHttpRequest');
  });

  test('the entry of React says that it is for the client', () => {
    const entry = join(consumer.folder, 'node_modules/bot-relay-client/react.js');
    expect(readFileSync(entry, 'utf8')).toMatch(/^"use client";/);
  });

  test('the element is kept, though nothing is taken from its entry', () => {
    expect(bundled("import 'bot-relay-client/element';").text).toMatch(/customElements\.define\(/);
  });

  test('an entry that is loaded for nothing is left out', () => {
    expect(
      bundled("import 'bot-relay-client'; import 'bot-relay-client/react'; import 'bot-relay-client/ai-sdk';")
        .text,
    ).toBe('');
  });
});

describe('the types of the package are valid, and refuse each mistake, in a strict project', () => {
  test('also for the events that the document adds', () => {
    expect(EVENTS).toContain("declare module 'bot-relay-client'");
  });

  // How a module is found does not depend on the version of React, so each of both is compiled once.
  const projects = {
    'in a page with React 19, without the types of Node': PAGE,
    'with the modules of Node, and React 18': NODE_PAGE,
    'in Node, without the types of browsers and of React': NODE_ALONE,
    'beside the AI SDK': AI_SDK,
  };
  testSideBySide(
    Object.entries(projects).map(([title, project], at) => [
      title,
      async () => {
        // A compiler that does not run finds no mistake either.
        const compiled = await compileIn(consumer, project, { name: String(at) });
        expect(compiled).toEqual({ found: '', fault: '', status: 0 });
      },
    ]),
  );
});
