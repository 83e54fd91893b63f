import type { Socket } from 'node:net';
import { afterAll, beforeAll, beforeEach } from '@jest/globals';
import { type RelayAndUpstream, startRelayAndUpstream } from '../relay/relay-and-upstream.ts';
import { isQuestion, launched } from '../service/launched-sandboxes.ts';
import type { RawRequest } from '../service/raw-upstream.ts';
import { ask, operationAt } from './operation-requests.ts';
import { jsonAnswer } from './suspend.ts';

const LIST = operationAt('GET sandbox/:sandbox/fs/list');

/** A relay without the group `chat`, which asks for itself, for all tests of a file. */
export function questionStage() {
  let pair: RelayAndUpstream;
  const stage = {
    get pair() {
      return pair;
    },
    /** What the service answers to the next questions. */
    tell: (socket: Socket, _request: RawRequest): void => void socket.end(launched('one', 'two')),
    /** A conversation of its own for each test, since the relay remembers what it was told. */
    channel: 0,
    inChannel: (row = LIST, changes: Parameters<typeof ask>[2] = {}) =>
      ask(pair, row, { channel: `c${stage.channel}`, ...changes }),
    /** Uses the sandbox with this name, as it stands in the path. */
    use: (name: string, changes: Parameters<typeof ask>[2] = {}, row = LIST) =>
      stage.inChannel({ ...row, path: row.path.replace(':sandbox', name) }, changes),
    questions: () => pair.upstream.requests.filter(isQuestion),
    others: () => pair.upstream.requests.filter((request) => !isQuestion(request)),
  };
  const { tell } = stage;
  beforeAll(async () => {
    pair = await startRelayAndUpstream(
      (socket, request) => {
        if (isQuestion(request)) stage.tell(socket, request);
        else socket.write(jsonAnswer('200 OK', { entries: [] }));
      },
      { OPERATIONS: 'sandbox', BOTS: 'acme/helper,acme/other' },
    );
  });
  afterAll(() => pair.close());
  beforeEach(() => {
    stage.channel += 1;
    pair.upstream.requests.length = 0;
    stage.tell = tell;
  });
  return stage;
}
