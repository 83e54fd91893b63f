import type { UpstreamAnswer } from '../../src/relay/upstream/answer-arrival.ts';
import { createUpstream } from '../../src/relay/upstream/send.ts';

/** The answer of the bot service at `url` to a small message, sent as the relay sends one. */
export function askUpstream(url: string): Promise<UpstreamAnswer> {
  const body = Buffer.from('{}');
  return createUpstream(new URL(url)).send(
    { path: '/', headers: { 'content-length': String(body.length) }, body },
    { signal: new AbortController().signal, mayLeave: async () => {}, onSent: () => {} },
  );
}
