import { setTimeout as sleep } from 'node:timers/promises';
import type { Ask, Brain, RunError, ToolCall } from '../brains/steps.ts';
import { type EventSource, type EventType, eventText } from '../store/bot-event.ts';
import type { Channel } from '../store/channel.ts';
import { type Run, SHUT_DOWN, SUSPENDED } from '../store/run.ts';
import { INTERRUPTED } from '../store/run-rows.ts';
import { runEndText } from './run-end.ts';
import { runMessages } from './run-messages.ts';
import { runTools } from './run-tools.ts';
import { untilAborted } from './until-aborted.ts';

/** What a run needs to be executed. */
export interface Execution {
  readonly run: Run;
  readonly brain: Brain;
  readonly ask: Ask;
  /** Where its messages are kept, if anywhere. */
  readonly channel: Channel | undefined;
  readonly source: EventSource;
  readonly maxExecutionMs: number;
}

/** Executes a run until it ends, fails, takes too long or is stopped. Its events go to those who follow it. */
export async function executeRun(execution: Execution): Promise<void> {
  const { run, channel, maxExecutionMs } = execution;
  const deadline = setTimeout(() => run.stop.abort(), maxExecutionMs);
  try {
    await sendEvents(execution);
  } finally {
    clearTimeout(deadline);
    run.end();
    channel?.removeLiveRun(run);
  }
}

async function sendEvents(execution: Execution): Promise<void> {
  const { run, source, brain, channel } = execution;
  const send = (eventType: EventType, fact: object) =>
    run.send(eventText(eventType, { source, fact }), false);
  const parts = { message: runMessages(execution, send), tools: runTools(channel, send) };
  send('asgard.run.init', { runInit: {} });
  const error = await answer(execution, parts).catch(() => errorOf(run.stop.signal));
  parts.tools.interrupt();
  try {
    channel?.endRun(run.id, error);
  } finally {
    run.send(runEndText(source, brain, error), false);
  }
}

interface Parts {
  readonly message: ReturnType<typeof runMessages>;
  readonly tools: ReturnType<typeof runTools>;
}

/** Takes the steps of the bot. Returns the error with which it ends its run, if it does; throws if it is aborted. */
async function answer(
  { run, brain, ask }: Execution,
  { message, tools }: Parts,
): Promise<RunError | undefined> {
  const { signal } = run.stop;
  let consent: ToolCall | undefined;
  try {
    for await (const step of untilAborted(brain.answer(ask, signal), signal)) {
      if ('error' in step) return step.error;
      if ('breakOff' in step) run.breakOff();
      else if ('startTool' in step) tools.start(step.id, step.startTool);
      else if ('toolResult' in step) tools.complete(step.id, step.toolResult);
      else if ('askConsent' in step) consent = step.askConsent;
      else if ('startMessage' in step) message.start();
      else if ('completeMessage' in step) message.complete(step.remember);
      else if ('remember' in step) message.remember(step.remember);
      else message.say(step.say);
      // A bot that never waits would otherwise keep the process from everything else.
      if ('toolResult' in step) await sleep(0);
    }
    message.complete();
  } catch (error) {
    if (signal.reason !== SUSPENDED) throw error;
    message.stop(brain.stopped);
  }
  if (consent) tools.askConsent(consent);
  return undefined;
}

/** What is said of a run that was aborted, or that failed in a way that nobody has thought of. */
function errorOf({ aborted, reason }: AbortSignal): RunError {
  if (reason === SHUT_DOWN) return INTERRUPTED;
  if (aborted && reason !== SUSPENDED)
    return { code: 'EXECUTION_TIMEOUT', message: 'The run took longer than it may.' };
  return { code: 'INTERNAL_ERROR', message: 'The bot service could not go on with this run.' };
}
