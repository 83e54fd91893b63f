import { botPath } from '../bots/bot.ts';
import { adviceOnProblem } from './advice.ts';
import { problemOf } from './answers.ts';
import { botOf, type Conversation, newMessage } from './conversation.ts';
import { isStream, jsonBody, wholeAnswer } from './http-client.ts';
import { arrivalVerdict, endingVerdict, heartbeatVerdict } from './judge-stream.ts';
import { observeStream } from './observe-stream.ts';
import { reportHeaders, reportWrong, type ThroughContext } from './through-context.ts';

/** How much longer than the relay's own limits the check waits for an answer, in ms. */
export const GRACE_MS = 10_000;

/** The first message of a conversation, in the session of `cookie`. */
export interface FirstMessage {
  readonly cookie: string;
  readonly conversation: Conversation;
  /** Called with the id of the run, as soon as it stands in the stream. */
  readonly onRun: (requestId: string) => void;
}

/**
 * Sends a message, if one is to be sent, and checks how its answer comes through the load balancer. Returns false if it
 * was refused or has failed, so that no other operation is worth trying.
 */
export async function checkThroughMessage(
  context: ThroughContext,
  { cookie, conversation, onRun }: FirstMessage,
): Promise<boolean> {
  const { config, client, base, bot, text, report, direct } = context;
  if (bot === undefined || text === undefined) return true;
  const { maxExecutionMs, responseTimeoutMs, heartbeatMs } = config.upstream;
  const about = report.about('message', bot);
  report.messages++;
  const opened = await client.open({
    ...{ method: 'POST', path: `${botPath(base, '/generic/ns', botOf(bot))}/message/sse`, cookie },
    body: jsonBody(newMessage(text, conversation)),
    timeoutMs: responseTimeoutMs + config.rate.maxWaitMs + GRACE_MS,
  });
  const { response } = opened;
  if (!isStream(response)) {
    const answer = await wholeAnswer(response);
    const code = problemOf(answer)?.code;
    reportWrong(answer, about, adviceOn(code));
    return code === 'operation_not_enabled';
  }
  // No event can be seen in a compressed stream.
  const isSeen = !response.headers['content-encoding'];
  if (!isSeen) response.destroy();
  const limitMs = maxExecutionMs + GRACE_MS;
  const seen = isSeen ? await observeStream(opened, { limitMs, onRun }) : undefined;
  if (seen?.failure) {
    const { status, code } = seen.failure;
    about.problem(`answered with ${report.quote(`${status} ${code}`)}`, adviceOn(code));
    return false;
  }
  conversation.isBegun = true;
  about.ok('is answered with a stream');
  reportHeaders(response.headers, 'message', report);
  if (!seen) return true;
  report.about('answer').add(endingVerdict(seen, (said) => report.quote(said)));
  if (seen.events === 0) return true;
  const advice =
    'At the load balancer, turn off buffering and compression of responses (nginx: proxy_buffering off).';
  report.about('arrival').add(arrivalVerdict(seen, { between: 'the load balancer', advice, direct }));
  report.about('heartbeat').add(heartbeatVerdict(seen, heartbeatMs));
  return true;
}

function adviceOn(code: string | undefined): string {
  const none =
    'This is no answer of the relay: look at the load balancer, and at the time it waits for an answer.';
  return adviceOnProblem(code, { none });
}
