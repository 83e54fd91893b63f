import { createRequire } from 'node:module';
import { describe, expect, test } from '@jest/globals';
import { bundle, REACT_VERSIONS } from '../harness/browser/react-page.ts';

const SERVER = `
  import { BotProvider, useBot, useSession } from 'bot-relay-client/react';
  import { renderToString } from 'react-dom/server';
  function Chat() {
    const bot = useBot({ initialMessages: [{ id: '1', role: 'user', parts: [], state: 'done', metadata: {} }] });
    const { session } = useSession();
    return <p>{bot.status} {String(bot.session)} {String(session)} {bot.messages.length}</p>;
  }
  show(renderToString(<BotProvider baseUrl="https://chat.example.com" namespace="acme" botProviderName="helper"><Chat /></BotProvider>));
`;

describe.each(REACT_VERSIONS)('useBot on a server with React %s', (react) => {
  test('renders the first messages, and sends no request', async () => {
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
    // A question of the session would be asked by a timer.
    await new Promise((resolve) => setTimeout(resolve, 1));
    expect(shown.map((html) => html.replaceAll('<!-- -->', ''))).toEqual([
      '<p>ready undefined undefined 1</p>',
    ]);
    expect(complaints).toEqual([]);
  });
});
