import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { answerChunks } from '../../src/client/ai-sdk/answer-chunks.ts';
import { answerParts } from '../../src/client/channel/answer-parts.ts';
import { type Guards, RelayError } from '../../src/client/session/bot-client.ts';
import { eventReader } from '../../src/client/transport/known-events.ts';
import { allOf, refuseUnhandledRejections, startRunsStage } from '../harness/clients/channels.ts';
import { until } from '../harness/clock/until.ts';
import { deltaOf } from '../harness/service/bot-runs.ts';
import { FACTS, pathsIn, withOther } from '../harness/service/event-facts.ts';

refuseUnhandledRejections();

/** What stands in place of a fact, or of a part of one. */
const ODD = [null, undefined, 0, 5, -1.5, true, false, '', 'text', [], [null], [[]], [{}], {}, { length: 1 }];
/** Kinds of an application, with every name that could be taken for one of the client's own. */
const OWN = ['acme.any', 'asgard.own', 'asgard.run.own', 'asgard.message.own', 'asgard.tool_call.own', ''];

/** The members of the facts of all kinds, each of them odd. */
const MEMBERS = Object.values(FACTS).flatMap((fact) => Object.keys(fact));
const OTHERS = ODD.map((other) => Object.fromEntries(MEMBERS.map((name) => [name, other])));

/** Each fact of a kind: whole, with odd members of other kinds, odd as a whole, and odd in each of its parts. */
const factsOf = (whole: object): unknown[] => [
  whole,
  ...OTHERS.map((others) => ({ ...others, ...whole })),
  ...ODD,
  ...pathsIn(whole).flatMap((path) => ODD.map((other) => withOther(whole, path, other))),
];
const KINDS = Object.entries(FACTS).map(([kind, fact]) => [kind, factsOf(fact)] as const);
const ALL = KINDS.flatMap(([, facts]) => facts);

/** Takes everything for known, also kinds of the client's own. */
const guards = Object.fromEntries([...Object.keys(FACTS), ...OWN].map((kind) => [kind, () => true]));

/** What an event with this fact is: not known, or its parts. An error other than that of a run fails the test. */
function partsOf(eventType: string, fact: unknown): unknown {
  const event = eventReader(guards as Guards)({ eventType, fact }, 'message', undefined);
  const makers = [answerParts(), answerChunks()];
  const [made] = makers.map(({ take }) => {
    try {
      return take(event);
    } catch (error) {
      expect([eventType, error]).toEqual(['asgard.run.error', expect.any(RelayError)]);
      return undefined;
    }
  });
  return made;
}

describe('an event with an odd fact', () => {
  test.each(KINDS)('of the kind %s throws nothing', (kind, facts) => {
    for (const fact of facts) partsOf(kind, fact);
  });

  test.each(OWN)('of the kind %j, which the application has added, throws nothing', (kind) => {
    for (const fact of ALL) partsOf(kind, fact);
  });

  test('of a kind of the application is a part with that fact, also null or like one of the client', () => {
    for (const fact of ALL)
      expect(partsOf('acme.any', fact)).toEqual({ parts: [{ type: 'data-acme.any', data: fact }] });
  });
});

describe('an answer with odd facts', () => {
  let stage: Awaited<ReturnType<typeof startRunsStage>>;
  beforeAll(async () => {
    stage = await startRunsStage();
  });
  afterAll(() => stage.close());

  test('goes on after each of them, and ends whole', async () => {
    const channel = await stage.channel({ id: 'odd' }, { guards: guards as Guards });
    const sent = channel.send('Hello');
    const run = await stage.bot.run('Hello');
    run.begin();
    for (const [kind, facts] of [...KINDS, ...OWN.map((kind) => [kind, ALL] as const)])
      if (kind !== 'asgard.run.error')
        run.write(facts.map((fact) => `data: ${JSON.stringify({ eventType: kind, fact })}\n\n`).join(''));
    run.send(deltaOf('All is well.', 'last'));
    run.finish();
    expect((await sent)?.error).toBeUndefined();
    await until(() => channel.getSnapshot().status === 'ready');
    expect(allOf(channel).at(-1)).toMatch(/All is well\.$/);
  });
});
