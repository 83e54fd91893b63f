import { newConversation } from '../conversation.ts';
import { apartness } from './apartness.ts';
import type { ForeignQuestion, GroupProbe } from './group-probe.ts';
import { jsonOf, stringsNamed, verdictOn } from './judge-operation.ts';
import type { OperationSession } from './operation-session.ts';
import { proveLive } from './prove-live.ts';
import { reporterOf } from './report-operation.ts';

const METADATA = 'GET channel/metadata';
const SUSPEND = 'POST message/suspend';

const ASK_SERVICE =
  'Ask those who run the bot service whether it keeps conversations apart by customChannelId, and answers 404 for one that it does not have.';

/** Metadata, history and suspend of conversations. */
export const chat: GroupProbe = {
  ask: ({ call }) => call(METADATA, { conversation: newConversation().id }),
  async prove(session) {
    await proveFresh(session);
    if (!session.conversation.isBegun) {
      const says = 'not proved with a conversation that exists, since no message was answered';
      reporterOf(session, METADATA).note(says, 'Check without --no-messages.');
      return [];
    }
    const questions = [...(await proveMetadata(session)), ...(await proveLive(session))];
    await proveSuspend(session);
    return questions;
  },
};

/** A conversation that nobody has begun: 404 of the bot service. */
async function proveFresh({ call, ...session }: OperationSession): Promise<void> {
  const { ok, problem, wrong } = reporterOf(session, METADATA);
  const answer = await call(METADATA, { conversation: newConversation().id });
  const verdict = verdictOn(answer);
  if (verdict === 'done') {
    const says = 'the bot service has a conversation that nobody has begun: it may mix up conversations';
    problem(says, ASK_SERVICE);
  } else if (verdict === 'unknown') ok('a conversation that nobody has begun is 404 of the bot service');
  else wrong(answer);
}

async function proveMetadata({ call, ...session }: OperationSession): Promise<ForeignQuestion[]> {
  const { ok, problem, wrong } = reporterOf(session, METADATA);
  const { id } = session.conversation;
  const answer = await call(METADATA, { conversation: id });
  const verdict = verdictOn(answer);
  if (verdict === 'unknown') {
    const says = 'the bot service answers 404 for a conversation in which it has just answered a message';
    const why = 'Clients take it for a new one, and may open a paid turn at each load.';
    problem(says, `${why} ${ASK_SERVICE}`);
  }
  if (verdict !== 'done') {
    if (verdict !== 'unknown') wrong(answer);
    return [];
  }
  const others = stringsNamed(jsonOf(answer), 'customChannelId').filter((named) => named !== id);
  if (others.length === 0) ok('the conversation of this check is there, under the id of the page');
  else {
    const says = `names another conversation than the page has asked for: ${session.quote(others.join(', '))}`;
    problem(says, ASK_SERVICE);
  }
  return [
    {
      what: 'its metadata',
      ask: async (other) => apartness(await other.call(METADATA, { conversation: id })),
    },
  ];
}

/** The run of the conversation is over, so that there is nothing to stop. */
async function proveSuspend({ call, ...session }: OperationSession): Promise<void> {
  const { ok, wrong } = reporterOf(session, SUSPEND);
  const answer = await call(SUSPEND, { conversation: session.conversation.id });
  const verdict = verdictOn(answer);
  if (verdict === 'unknown') ok('404 of the bot service: there is nothing to stop');
  else if (verdict === 'done') ok(`answered with ${answer.status}`);
  else wrong(answer);
}
