import type { UpstreamAnswer } from '../../../src/relay/upstream/answer-arrival.ts';
import { createUpstream } from '../../../src/relay/upstream/send.ts';

/** Sends a small message to the bot service at `url` as the relay does, and returns the answer. */
export function askUpstream(url: string): Promise<UpstreamAnswer> {
  const body = Buffer.from('{}');
  return createUpstream(new URL(url)).send(
    { path: '/', headers: { 'content-length': String(body.length) }, body },
    { signal: new AbortController().signal, onDelayed: async () => {}, onSent: () => {} },
  );
}
