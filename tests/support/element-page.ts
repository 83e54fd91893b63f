import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { type FakeLoadBalancer, startFakeLoadBalancer } from './fake-load-balancer.ts';

/** The policy of the chat page: nothing runs but its own files, and no text becomes code. */
export const STRICT_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "connect-src 'self'",
  "img-src 'self' blob:",
  "base-uri 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

const PAGE =
  '<!doctype html><html lang="en"><meta charset="utf-8"><title>Page</title><link rel="icon" href="/page.js"><main><h1>Page</h1></main><script type="module" src="/page.js"></script></html>';

/** Serves a page whose script is `contents`, which may import modules of `src/client/element`, under a strict policy. */
export async function serveElementPage(contents: string, policy = STRICT_POLICY): Promise<FakeLoadBalancer> {
  const resolveDir = fileURLToPath(new URL('../../src/client/element', import.meta.url));
  const { outputFiles } = await build({
    stdin: { contents, resolveDir },
    bundle: true,
    format: 'esm',
    write: false,
  });
  const script = String(outputFiles[0]?.text);
  return startFakeLoadBalancer({
    answer({ url }, res) {
      const isPage = url === '/';
      res.writeHead(isPage || url === '/page.js' ? 200 : 404, {
        'Content-Type': isPage ? 'text/html; charset=utf-8' : 'text/javascript',
        'Content-Security-Policy': policy,
      });
      res.end(isPage ? PAGE : script);
      return true;
    },
  });
}
