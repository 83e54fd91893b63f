import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { pagePolicy } from '../../../src/page/page-policy.ts';
import { type FakeLoadBalancer, startFakeLoadBalancer } from '../faults/fake-load-balancer.ts';

const STYLE =
  ':root { color-scheme: light dark } html, body, main { height: 100%; margin: 0 } #chat { height: 100% } h1 { position: absolute; clip-path: inset(50%) }';
const PAGE =
  '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Page</title><link rel="icon" href="/page.js"><link rel="stylesheet" href="/page.css"></head><body><main><h1>Page</h1></main><script type="module" src="/page.js"></script></body></html>';

/** Serves a page whose script is `contents`, which may import modules of `src/client/element`, under the policy of the chat page. */
export async function serveElementPage(
  contents: string,
  policy = pagePolicy(['blob:']),
): Promise<FakeLoadBalancer> {
  const resolveDir = fileURLToPath(new URL('../../../src/client/element', import.meta.url));
  const { outputFiles } = await build({
    stdin: { contents, resolveDir },
    bundle: true,
    splitting: true,
    chunkNames: '[name]-[hash]',
    outdir: '/',
    format: 'esm',
    write: false,
  });
  // With the files that are loaded later.
  const scripts = outputFiles.map(({ path, text }) => [
    path === '/stdin.js' ? '/page.js' : path,
    ['text/javascript', text] as const,
  ]);
  return startFakeLoadBalancer({
    answer({ url }, res) {
      const files: Record<string, readonly [type: string, text: string]> = {
        '/': ['text/html; charset=utf-8', PAGE],
        ...Object.fromEntries(scripts),
        '/page.css': ['text/css', STYLE],
      };
      const [type, text] = files[`${url}`] ?? [];
      res.writeHead(type ? 200 : 404, {
        'Content-Type': type ?? 'text/plain',
        'Content-Security-Policy': policy,
      });
      res.end(text);
      return true;
    },
  });
}
