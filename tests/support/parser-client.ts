import { EventSourceParserStream } from 'eventsource-parser/stream';
import type { Received } from './field-client.ts';
import type { RelayAndUpstream } from './relay-and-upstream.ts';
import { sleep } from './sleep.ts';

const RESUMES = 3;

/**
 * Sends a message once and reads its answer with `eventsource-parser`. With `resumes`, it asks for the rest of a stream
 * that broke after an id, as the newest clients do; a status other than 200 is final.
 */
export async function parserClient(
  { relay, cookie }: Pick<RelayAndUpstream, 'relay' | 'cookie'>,
  resumes: boolean,
): Promise<Pick<Received, 'data' | 'error'>> {
  const data: Received['data'] = [];
  let lastId = '';
  for (let left = resumes ? RESUMES : 0; ; left--) {
    const response = await relay.send(cookie, lastId ? { headers: { 'Last-Event-ID': lastId } } : {});
    if (response.status !== 200) return { data, error: response.status };
    const events = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>)
      .pipeThrough(new TextDecoderStream())
      .pipeThrough(new EventSourceParserStream());
    try {
      for await (const event of events) {
        data.push(JSON.parse(event.data) as Received['data'][number]);
        lastId = event.id || lastId;
      }
      return { data, error: undefined };
    } catch (error) {
      if (lastId === '' || left === 0) return { data, error };
      await sleep(10);
    }
  }
}
