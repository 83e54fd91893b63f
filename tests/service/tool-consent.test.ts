import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import {
  type DemoService,
  demoEvents,
  startDemoService,
  wholeMessages,
} from '../harness/service/demo-service.ts';

const ASK = { customChannelId: 'c1', text: 'What time is it?', action: 'NONE' };

let service: DemoService;
beforeEach(async () => {
  service = await startDemoService();
});
afterEach(() => service.close());

type Events = ReturnType<typeof demoEvents>;
const typesOf = (events: Events) => events.map(({ eventType }) => eventType);
const consentIn = (events: Events) =>
  events.find(({ eventType }) => eventType === 'asgard.tool_call.consent')?.fact.toolCallConsent as
    | { processId: string; pendingCalls: { toolCallId: string }[] }
    | undefined;
const said = (events: Events) => wholeMessages(events).map(({ text }) => text);
const CALLED = ['asgard.tool_call.start', 'asgard.tool_call.complete'];

/** Asks the bot, and answers its question with `result`. */
async function askAndAnswer(result: string) {
  const toolCallId = consentIn(await service.say(ASK, 'tools'))?.pendingCalls[0]?.toolCallId;
  return service.say(consent([{ toolCallId, result }]), 'tools');
}

const consent = (toolCallConsents: unknown, customChannelId = 'c1') => ({
  customChannelId,
  action: 'RESPONSE_TOOL_CALL_CONSENT',
  toolCallConsents,
});

describe('the bot tools', () => {
  test('asks before it calls its tool, and the run ends', async () => {
    const events = await service.say(ASK, 'tools');
    expect(typesOf(events).slice(-3)).toEqual([
      'asgard.message.complete',
      'asgard.tool_call.consent',
      'asgard.run.done',
    ]);
    expect(typesOf(events)).not.toContain('asgard.tool_call.start');
    expect(consentIn(events)).toEqual({
      processId: expect.stringMatching(/^[0-9a-f-]{36}$/),
      pendingCalls: [
        {
          toolCallId: expect.stringMatching(/^[0-9a-f-]{36}$/),
          toolsetName: 'demo',
          toolName: 'clock',
          parameter: { zone: 'UTC' },
          alreadyAllowed: false,
        },
      ],
    });
  });

  test('asks again in the history, until it is answered', async () => {
    const asked = consentIn(await service.say(ASK, 'tools'));
    const history = async () =>
      demoEvents((await service.ask('GET message/sse?custom_channel_id=c1', { bot: 'tools' })).body);
    expect(consentIn(await history())).toEqual(asked);
    await service.say(
      consent([{ toolCallId: asked?.pendingCalls[0]?.toolCallId, result: 'DENY_ONCE' }]),
      'tools',
    );
    expect(consentIn(await history())).toBeUndefined();
    expect(said(await history())).toEqual(['May I look at the clock?', 'Then I do not know.']);
  });

  test('calls its tool once it is allowed, and asks again the next time', async () => {
    const events = await askAndAnswer('ALLOW_ONCE');
    expect(typesOf(events)).toEqual(expect.arrayContaining(CALLED));
    const complete = events.find(({ eventType }) => eventType === 'asgard.tool_call.complete');
    expect(complete?.fact.toolCallComplete).toMatchObject({
      callSeq: 0,
      toolCall: { toolName: 'clock' },
      toolCallResult: { time: expect.stringMatching(/^\d\d:\d\d$/) },
    });
    expect(complete?.id).toBeUndefined();
    expect(said(events)).toEqual([expect.stringMatching(/^It is \d\d:\d\d in UTC\.$/)]);
    expect(consentIn(await service.say(ASK, 'tools'))).toBeDefined();
  });

  test('asks no more once it is allowed for good, in this channel', async () => {
    await askAndAnswer('ALLOW_ALWAYS');
    expect(typesOf(await service.say(ASK, 'tools'))).toEqual(expect.arrayContaining(CALLED));
    expect(consentIn(await service.say({ ...ASK, customChannelId: 'c2' }, 'tools'))).toBeDefined();
  });

  test('calls no tool if it is denied', async () => {
    const events = await askAndAnswer('DENY_ONCE');
    expect(said(events)).toEqual(['Then I do not know.']);
    expect(typesOf(events)).not.toContain('asgard.tool_call.start');
  });

  test('does not ask if the query says so', async () => {
    const { body } = await service.send(ASK, { bot: 'tools', query: '?bypass_tool_call_consent=true' });
    expect(typesOf(demoEvents(body))).toEqual(expect.arrayContaining(CALLED));
  });

  test('takes an answer to the call that waits, and to no other', async () => {
    const code = async (message: object) => {
      const { status, body } = await service.send(message, { bot: 'tools' });
      return [status, (JSON.parse(body) as { error: { code: string } }).error.code];
    };
    const toolCallId = consentIn(await service.say(ASK, 'tools'))?.pendingCalls[0]?.toolCallId;
    const allow = [{ toolCallId, result: 'ALLOW_ONCE' }];
    const none = [400, 'NO_CONSENT_PENDING'];
    expect(await code(consent([{ toolCallId: 'x', result: 'ALLOW_ONCE' }]))).toEqual(none);
    expect(await code(consent([]))).toEqual(none);
    expect(await code(consent(allow, 'c2'))).toEqual(none);
    expect(await code({ ...consent(allow), customChannelId: null })).toEqual(none);
    for (const wrong of ['x', [null], [{ toolCallId, result: 'YES' }], [{ result: 'ALLOW_ONCE' }]])
      expect(await code(consent(wrong))).toEqual([400, 'INVALID_MESSAGE']);
    expect((await service.ask('GET channel/metadata?custom_channel_id=c2', { bot: 'tools' })).status).toBe(
      404,
    );
    expect(said(await service.say(consent(allow), 'tools'))).toEqual([expect.stringMatching(/^It is/)]);
    expect(await code(consent(allow))).toEqual(none);
    // Another message instead of the answer: the call waits no more.
    const second = consentIn(await service.say(ASK, 'tools'))?.pendingCalls[0]?.toolCallId;
    await service.say({ ...ASK, text: '' }, 'tools');
    expect(await code(consent([{ toolCallId: second, result: 'ALLOW_ONCE' }]))).toEqual(none);
  });
});
