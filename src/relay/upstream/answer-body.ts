import { Readable } from 'node:stream';
import type { UpstreamAnswer } from './answer-arrival.ts';

/**
 * The body of `answer` as a stream of Node.js, for bodies that the relay itself reads. If the body breaks off, the
 * stream's error has the cause as its `code`.
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
