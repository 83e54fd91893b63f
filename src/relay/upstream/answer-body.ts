import { Readable } from 'node:stream';
import type { UpstreamAnswer } from './answer-arrival.ts';

/**
 * The body of `answer` as a stream of Node.js, for what is read to its end by the relay itself. A body that breaks off
 * is an error with that `code`.
 */
export function bodyOf(answer: UpstreamAnswer): Readable {
  const body = new Readable({
    read: answer.resume,
    destroy(error, done) {
      answer.close();
      done(error);
    },
  });
  answer.read({
    data(chunk) {
      if (!body.push(chunk)) answer.pause();
    },
    end: () => void body.push(null),
    broken: (code) => void body.destroy(Object.assign(new Error('The body broke off.'), { code })),
  });
  return body;
}
