import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { buildSync } from 'esbuild';
import type { Consumer } from '../harness/clients/consumer.ts';
import { typedConsumer } from '../harness/clients/typed-consumer.ts';
import { ROOT } from '../harness/documents/sources.ts';

let consumer: Consumer;
beforeAll(() => {
  consumer = typedConsumer();
});
afterAll(() => consumer.remove());

const gzipped = (file: string | Uint8Array) => gzipSync(file, { level: 9 }).length / 1024;
/** The KiB in gzip that a page loads for these exports, minified. */
function kib(contents: string): number {
  const { outputFiles } = buildSync({
    stdin: { contents, resolveDir: consumer.folder },
    ...{ bundle: true, minify: true, format: 'esm', platform: 'browser', external: ['react'] },
    ...{ write: false, outdir: consumer.folder, absWorkingDir: ROOT },
  });
  return gzipped(String(outputFiles[0]?.text));
}

test('the package and the element are no larger than the document promises', () => {
  const client = kib("export { createBotClient } from 'bot-relay-client';");
  expect(client).toBeLessThanOrEqual(7);
  expect(kib("export { createBotClient, createChannel } from 'bot-relay-client';")).toBeLessThanOrEqual(15);
  const channels = kib("export { createBotClient, createChannel, textOf } from 'bot-relay-client';");
  expect(kib("export * from 'bot-relay-client/react';") - channels).toBeLessThanOrEqual(0.5);
  const transport = "export { botChatTransport } from 'bot-relay-client/ai-sdk';";
  expect(
    kib(`export { createBotClient } from 'bot-relay-client'; ${transport}`) - client,
  ).toBeLessThanOrEqual(4.75);
  expect(gzipped(readFileSync(join(ROOT, 'dist/bot-chat.js')))).toBeLessThanOrEqual(45);
});
