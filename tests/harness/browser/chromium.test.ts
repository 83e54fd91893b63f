import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { type Chromium, describeInChromium, startChromium } from './chromium.ts';

/** A page with every kind of error that a tab should report. */
const BAD_PAGE = `<!doctype html><title>bad</title><link rel="icon" href="data:,"><body>
<script>'inline code'</script><script src="script.js"></script>`;
const SCRIPT = `console.warn('a warning'); console.error('an error');
Promise.reject(new Error('a rejection'));
Promise.all(['/auth/session', '/missing'].map((path) => fetch(path))).then(() => { document.body.id = 'done'; });
throw new Error('thrown');`;

describeInChromium('a tab', () => {
  let chromium: Chromium;
  let server: Server;
  let url: string;
  beforeAll(async () => {
    server = createServer((req, res) => {
      res.setHeader('Content-Security-Policy', "default-src 'self'; img-src data:");
      if (req.url === '/') res.setHeader('Content-Type', 'text/html').end(BAD_PAGE);
      else if (req.url === '/script.js') res.setHeader('Content-Type', 'text/javascript').end(SCRIPT);
      else res.writeHead(404).end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    chromium = await startChromium();
  });
  afterAll(async () => {
    await chromium?.close();
    server.closeAllConnections();
    server.close();
  });

  test('reports the errors of a page, and nothing else', async () => {
    const { page, complaints } = await chromium.open(url);
    await page.locator('#done').waitFor({ state: 'attached' });
    expect(complaints.map((line) => line.split('\n')[0]).sort()).toEqual([
      expect.stringMatching(/^error: .*inline script.*Content Security Policy/s),
      expect.stringMatching(/^error: Failed to load resource: .*404.*\/missing\)$/),
      expect.stringMatching(/^error: an error /),
      'uncaught: Error: a rejection',
      'uncaught: Error: thrown',
      expect.stringMatching(/^warning: a warning /),
    ]);
  });
});
