import { botName } from '../bots/bot.ts';
import { Problem } from '../errors.ts';
import type { RequestLocals } from '../http/locals.ts';
import type { GoOn, TakenRun } from '../join/joinable-runs.ts';
import { type CursorState, cursorOf } from '../relay/message/cursor-state.ts';
import { deadlines } from '../relay/message/deadlines.ts';
import { conductRun } from './conduct-run.ts';
import { carry } from './message.ts';
import type { MessageRoute } from './message-parts.ts';
import type { Answered, MessageTask, RunHold } from './message-steps.ts';

/** Makes the function that resumes the stream of a run whose instance is lost, and sees the run to its end. */
export function goOnWith(route: MessageRoute): GoOn {
  return (taken) => seeToItsEnd(route, taken);
}

function seeToItsEnd(route: MessageRoute, taken: TakenRun): void {
  const { run } = taken;
  const task = taskOf(taken);
  const sent = (async () => answeredOf(route, task, taken))();
  const failureOf = async (error: unknown) => error;
  const carryRun = (answered: Answered) => carry(route, { task, answered }, run.stream.outlet);
  conductRun({ run, hasBegun: true, sent, failureOf, carry: carryRun, task, logger: route.logger });
}

function taskOf({ run, hold }: TakenRun): MessageTask {
  const { userId, bot, shape, holders } = hold as RunHold;
  const locals: RequestLocals = { requestId: run.requestId };
  return {
    ...{ userId, bot, shape, holders, locals },
    ...{ url: '', headers: {}, stop: run.stop, releases: [], progress: run.progress },
    setHeaders() {},
    run: undefined,
  };
}

/** As if the stream had just broken here. */
function answeredOf(route: MessageRoute, task: MessageTask, { hold, cursor, sinceMs }: TakenRun): Answered {
  const { path, headers, body, conversation, leftMs } = hold as RunHold;
  const { bot, holders, locals, stop, releases } = task;
  const limits = deadlines(stop, route.times);
  releases.push(limits.clear);
  limits.start(leftMs === undefined ? Number.POSITIVE_INFINITY : Math.max(1, leftMs - sinceMs));
  limits.answered();
  const answer = cursorOf(cursor as CursorState, route.holding.held);
  if (!answer) {
    throw new Problem('upstream_stream_broken', 'The answer broke off; it is not complete.', {
      cause: 'no_room',
    });
  }
  const request = { path, headers, body: Buffer.from(body, 'base64') };
  const kept = route.keepMessage({ request, bot: botName(bot), holders, locals });
  const deadline = { check() {}, begin: () => 0, ended() {} };
  return { answer, head: new Map(), deadline, kept, conversation };
}
