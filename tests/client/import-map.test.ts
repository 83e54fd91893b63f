import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { makeConsumer } from '../harness/clients/consumer.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { startFakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import { startRelay, USER } from '../harness/relay/relay.ts';

const document = readFileSync(join(ROOT, 'docs/front-end.md'), 'utf8');
const [, SNIPPET = ''] = /<!-- snippet: import-map -->\n```html\n([\s\S]*?)```/.exec(document) ?? [];
/** The page of the document, whose script signs in and shows who that is. */
const PAGE = `<!doctype html><html lang="en"><title>Page</title>${SNIPPET.replace(
  /<\/script>\s*$/,
  `document.title = (await client.signIn('${USER.name}', '${USER.password}')).user.name;</script>`,
)}`;

/** Whether the error of an element without a relay is a RelayError of the client's own entry. */
const FAILURE = `(async () => {
  const { RelayError } = await import('/bot-relay-client/index.js');
  await import('/bot-relay-client/element.js');
  const chat = document.createElement('bot-chat');
  chat.setAttribute('base-url', '/nowhere');
  document.body.append(chat);
  return new Promise((resolve) =>
    chat.addEventListener('bot-error', ({ detail }) => resolve([detail instanceof RelayError, detail.status])));
})()`;

describeInChromium('a page without a bundler', () => {
  const chromium = oneChromium();

  test('loads the files of the package by the import map of the document, which share their RelayError', async () => {
    const consumer = makeConsumer([]);
    const relay = await startRelay('http://127.0.0.1:9');
    const front = await startFakeLoadBalancer({
      answer({ url = '' }, res) {
        const file = join(consumer.folder, 'node_modules', url);
        const isPage = url === '/';
        if (!isPage && !(url.endsWith('.js') && existsSync(file))) return false;
        res.setHeader('Content-Type', isPage ? 'text/html' : 'text/javascript');
        res.end(isPage ? PAGE : readFileSync(file));
        return true;
      },
    });
    front.forwardTo(relay.port);
    try {
      const { page, complaints } = await chromium.open(`${front.url}/`);
      await page.waitForFunction(`document.title === '${USER.name}'`);
      expect(complaints).toEqual([]);
      expect(await page.evaluate(FAILURE)).toEqual([true, 404]);
    } finally {
      await front.close();
      await relay.close();
      consumer.remove();
    }
  });
});
