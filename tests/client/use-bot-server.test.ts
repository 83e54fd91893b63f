import { createRequire } from 'node:module';
import { describe, expect, test } from '@jest/globals';
import { bundle, REACT_VERSIONS } from '../support/react-page.ts';

const SERVER = `
  import { useBot } from 'bot-relay-client/react';
  import { renderToString } from 'react-dom/server';
  function Chat() {
    const bot = useBot({ baseUrl: '', namespace: 'acme', botProviderName: 'helper' });
    return <p>{bot.status} {String(bot.session)} {bot.messages.length}</p>;
  }
  show(renderToString(<Chat />));
`;

describe.each(REACT_VERSIONS)('useBot on a server with React %s', (react) => {
  test('renders an empty conversation, and sends no request', async () => {
    const code = await bundle({ text: SERVER }, { react, platform: 'node' });
    const shown: string[] = [];
    const complaints: unknown[][] = [];
    const complain = (...what: unknown[]) => complaints.push(what);
    const inner = {
      require: createRequire(import.meta.url),
      show: (html: string) => shown.push(html),
      console: { ...console, error: complain, warn: complain },
      fetch: () => complain('a request'),
    };
    new Function(...Object.keys(inner), code)(...Object.values(inner));
    expect(shown.map((html) => html.replaceAll('<!-- -->', ''))).toEqual(['<p>idle undefined 0</p>']);
    expect(complaints).toEqual([]);
  });
});
