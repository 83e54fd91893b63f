import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { userHintHeader } from '../../src/relay/upstream/upstream-target.ts';
import { jsonAnswer, suspend } from '../harness/clients/suspend.ts';
import { LONG_NAMED_USER, USER } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

const NAME = 'X-ASGARD-USER-IDENTITY-HINT';
const sha256 = (text: string) => createHash('sha256').update(text, 'utf8').digest('hex');

describe('the value of USER_HEADER', () => {
  const fitting = ['ada', '!~', 'guest:1b4e28ba-2fa1-11d2-883f-0016d3cca427', 'a'.repeat(128), 'a,b;c="d"'];

  test.each(fitting)('is the user id %j', (id) => {
    expect(userHintHeader(NAME, id)).toEqual({ 'x-asgard-user-identity-hint': id });
  });

  const others = ['zoë', 'a b', ' a', 'a'.repeat(129), 'a\r\nX-Evil: 1', '\u007f', 'ａ', '\t', ''];

  test.each(others)('is the SHA-256 of the user id %j', (id) => {
    expect(userHintHeader(NAME, id)).toEqual({ 'x-asgard-user-identity-hint': sha256(id) });
  });

  test('is not there if no header is named', () => {
    expect(userHintHeader(undefined, 'ada')).toEqual({});
  });
});

describe('of a message and of a suspend,', () => {
  let pair: RelayAndUpstream;
  beforeAll(async () => {
    pair = await startRelayAndUpstream(
      (socket, { requestLine }) =>
        void socket.write(
          requestLine.includes('/sse') ? wholeStream('data: 1\n\n') : jsonAnswer('200 OK', {}),
        ),
      { USER_HEADER: NAME },
    );
  });
  afterAll(() => pair.close());

  test.each([
    ['the user of the session', USER, USER.name],
    ['the hash of a user who does not fit into it', LONG_NAMED_USER, sha256(LONG_NAMED_USER.name)],
  ])('the hint carries %s, and nothing of the browser', async (_who, user, value) => {
    const cookie = await pair.relay.signIn(user);
    const evil = {
      [NAME]: 'evil',
      'x-asgard-user-identity-hint': 'evil',
      'X_Asgard-User-Identity_Hint': 'evil',
    };
    const from = pair.upstream.requests.length;
    const answer = await pair.relay.send(cookie, { headers: evil });
    await answer.text();
    expect((await suspend({ ...pair, cookie }, { headers: evil })).status).toBe(200);
    const sent = pair.upstream.requests.slice(from);
    expect(sent).toHaveLength(2);
    for (const { headers } of sent) {
      const hints = headers.filter(([name]) => /hint/i.test(name));
      expect(hints).toEqual([['x-asgard-user-identity-hint', value]]);
      expect(JSON.stringify(headers)).not.toContain('evil');
    }
  });
});
